"""From ATen graphs in torch.fx to litz loop graphs."""

__version__ = "0.1.0"
