def forward(self, x):
    """Return head(normalise(body(x))) with normalise in fp32, also under autocast."""
    raise NotImplementedError
