import torch


def forward(self, x):
    """Run body, normalise and head; normalise in fp32, the linear layers as autocast decides."""
    hidden = self.body(x)
    with torch.autocast(x.device.type, enabled=False):
        hidden = self.normalise(hidden.float())
    return self.head(hidden)
