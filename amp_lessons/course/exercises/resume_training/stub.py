def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):
    """Write to the file ``path`` what training needs to go on after ``epoch`` finished epochs."""
    raise NotImplementedError


def load_checkpoint(path, model, optimizer, scheduler, scaler):
    """Put everything back, in place, and return the number of finished epochs."""
    raise NotImplementedError
