import torch


def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):
    """Write everything that training needs to go on after ``epoch`` finished epochs."""
    state = {"epoch": epoch, "rng": torch.get_rng_state()}
    state |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state |= {"scheduler": scheduler.state_dict(), "cuda_rng": torch.cuda.get_rng_state_all()}
    torch.save(state, path)


def load_checkpoint(path, model, optimizer, scheduler, scaler):
    """Put everything back, in place, and return the number of finished epochs."""
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    torch.set_rng_state(state["rng"])
    torch.cuda.set_rng_state_all(state["cuda_rng"])
    return state["epoch"]
