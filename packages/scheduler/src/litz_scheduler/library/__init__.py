"""Which routine of the host runs what litz has no loops for: matrix products, convolutions."""

from litz_scheduler.library.addends import Addends
from litz_scheduler.library.attention_calls import ATTENTIONS, GRADIENTS
from litz_scheduler.library.convolutions import Convolutions
from litz_scheduler.library.generated import GeneratedProducts
from litz_scheduler.library.generated_attention import GeneratedAttention
from litz_scheduler.library.generated_convolutions import GeneratedConvolutions
from litz_scheduler.library.held import KeepHeld
from litz_scheduler.library.images import Images
from litz_scheduler.library.padding import PadRows
from litz_scheduler.library.products import Products

__all__ = [
    "ATTENTIONS",
    "GRADIENTS",
    "Addends",
    "Convolutions",
    "GeneratedAttention",
    "GeneratedConvolutions",
    "GeneratedProducts",
    "Images",
    "KeepHeld",
    "PadRows",
    "Products",
]
