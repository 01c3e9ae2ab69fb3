def forward(self, x):
    """Return self.head(self.normalise(self.body(x))) with normalise in fp32, also under autocast."""
    raise NotImplementedError
