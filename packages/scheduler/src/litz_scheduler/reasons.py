"""Reasons for the scheduler's decisions, a row each."""

from __future__ import annotations

from litz_ir.fused import Reason

INLINE_VIEW = Reason("inline.view", "a view is only an index map, which costs nothing in its reader's loop")
INLINE_SINGLE = Reason("inline.single", "its only reader computes it at no extra cost")
INLINE_LOOP_INVARIANT = Reason("inline.loop_invariant", "its only reader computes it outside its inner loop")
INLINE_OPERAND = Reason(
    "inline.operand", "a matmul computes it while it loads tiles of its operand, at almost no cost"
)
INLINE_CHEAP = Reason("inline.cheap", "recomputing it costs less than a round trip through memory")

SELECT_ONE_HOT = Reason("select.one_hot", "one index alone selects an element that is not zero")

REALISE_EXPENSIVE = Reason("realise.expensive", "it has several readers and is too expensive to recompute")
REALISE_NARROW = Reason("realise.narrow", "it takes fewer bytes than the expensive value that it alone reads")
REALISE_SIZE = Reason("realise.size", "inlining it would exceed the statement limit of its reader's kernel")
REALISE_RAISES = Reason("realise.raises", "it may report an error at an element that its readers do not read")
REALISE_CALLED = Reason("realise.called", "a call reads it, so it must be in memory")
REALISE_OUTPUT = Reason("realise.output", "the graph returns it")
REALISE_MATMUL = Reason(
    "realise.matmul", "it is the epilogue of a matmul, whose full-precision sums are not stored"
)
REALISE_OPERAND = Reason("realise.operand", "a matmul that inlined it would recompute it for every tile")
REALISE_VERSION = Reason("realise.version", "it is the new content of an existing buffer")

FUSE_PRODUCER = Reason("fuse.producer", "it reads a value that the group computes, at the same points")
FUSE_SIBLING = Reason("fuse.sibling", "it reads a buffer that the group reads, over the same points")
FUSE_FOREACH = Reason(
    "fuse.foreach", "both run over the same points and move too few bytes for a launch each"
)
FUSE_HORIZONTAL = Reason(
    "fuse.horizontal", "the kernels are independent and move too few bytes for a launch each"
)

WRITE_OUT_COMBINER = Reason(
    "write_out.combiner", "the device has no combiner of that name, so it is written out"
)

REFUSE_DOMAIN = Reason("refuse.domain", "the loops do not run over the same points")
REFUSE_ORDER = Reason("refuse.order", "fusing them would create a dependency cycle")
REFUSE_INDEX = Reason("refuse.index", "it reads another element of a value that the group computes")
REFUSE_VERSION = Reason("refuse.version", "one overwrites a buffer that the other reads")
REFUSE_DEVICE = Reason("refuse.device", "they run on different devices")
REFUSE_PARALLEL = Reason("refuse.parallel", "the fused kernel would have too few points to run in parallel")
REFUSE_SIZE = Reason("refuse.size", "the fused kernel would exceed the statement limit")
REFUSE_BUFFERS = Reason("refuse.buffers", "the fused kernel would access too many buffers")
REFUSE_MATMUL = Reason("refuse.matmul", "a matmul is fused only with operations that use its result")
REFUSE_TRAFFIC = Reason("refuse.traffic", "they share too few bytes for fusion to pay off")
REFUSE_PEAK = Reason("refuse.peak", "one launch of the independent kernels would raise the memory peak")

ALIAS_VIEW = Reason("alias.view", "it is a view of existing memory")
COPY_LAYOUT = Reason("copy.layout", "its reader needs another layout")

MEMORY_REUSE = Reason("memory.reuse", "it takes the memory of a value that is dead")
MEMORY_INPLACE = Reason("memory.inplace", "it overwrites an input after that input's last use")
MEMORY_ARENA = Reason(
    "memory.arena", "only kernels access it, so it is placed in an allocation with other values"
)
MEMORY_FRESH = Reason("memory.fresh", "no dead memory fits")

ORDER_EAGER = Reason("order.eager", "no other order that was tried has a clearly lower memory peak")
ORDER_PEAK = Reason("order.peak", "its memory peak is lower than that of eager's order")
SINK_CONSTANT = Reason(
    "sink.constant", "it is a constant, so it is created on the device that it was copied to"
)
SHARE_KERNEL = Reason("share.kernel", "it equals an existing kernel, up to buffer names")

SCAN_LOOKBACK = Reason(
    "scan.lookback", "its rows are few and long, so thread blocks scan chunks of them by decoupled look-back"
)
REDUCE_CLUSTER = Reason(
    "reduce.cluster",
    "its rows or columns are too few or too long for a block each, so a cluster reduces each",
)
MERGE_ONLINE = Reason(
    "merge.online",
    "both reductions read elements that leave the registers, so one online reduction computes both",
)
SPLIT_ROWS = Reason(
    "split.rows",
    "sums over each row are needed too, so a kernel that reads the rows once reduces chunks of them to both",
)
SPLIT_STORED = Reason(
    "split.stored",
    "its columns are those of a stored matrix, whose kernel also adds up the rows of each chunk",
)
SPLIT_THREADS = Reason(
    "split.threads", "it has too few results for the threads, so chunks are reduced in parallel and combined"
)

LIBRARY_LINEAR = Reason(
    "library.linear", "the host's routine for linear layers is faster than ATen's at this size"
)
LIBRARY_BIAS = Reason(
    "library.bias",
    "its readers add the bias in their loops, and a matmul without bias has more library routines",
)
LIBRARY_ATTENTION = Reason(
    "library.attention",
    "one loop over the keys computes scores, softmax and weighted sum, and stores no scores",
)
LIBRARY_UNALIGNED = Reason(
    "library.unaligned",
    "library routines are slow where rows are no multiple of a vector, and the graph returns the rows as they are",
)
LIBRARY_CONVOLUTION_BIAS = Reason(
    "library.convolution_bias",
    "the library adds a bias and sums its gradient in kernels of their own, loops fuse both with their neighbours",
)
LIBRARY_PATCHES = Reason(
    "library.patches",
    "a matmul reads whole patches in vectors, and the library is slow where channels are no multiple of one",
)
LIBRARY_GENERATED = Reason(
    "library.generated", "it was chosen to run as a loop, which its prologue and epilogue can be fused into"
)
LIBRARY_BLOCKS = Reason(
    "library.blocks",
    "kernels compute its scores in blocks that stay in cache, and fuse with what is around it",
)
LIBRARY_TILES = Reason(
    "library.tiles",
    "kernels compute it in tiles over prepacked weights, and its epilogue while a tile is in cache",
)
LIBRARY_INVARIANT = Reason(
    "library.invariant",
    "a library sums in an order that may depend on the number of rows, and batch_invariant is set",
)
LIBRARY_FEW_ROWS = Reason(
    "library.few_rows",
    "a matmul of few rows is bound by reading the matrix, which a loop does once, in the form that it has in memory",
)
LIBRARY_ALIGNED = Reason(
    "library.aligned", "library routines load several elements at a time where rows are multiples of them"
)
LIBRARY_GROUPS = Reason(
    "library.groups",
    "the library copies groups of channels to a power of two, slower than loops that write them so do",
)
LIBRARY_CONVOLUTION = Reason(
    "library.convolution",
    "its weight is prepacked once, and the host's routine is fastest on channels-last data",
)
LIBRARY_CHANNELS_LAST = Reason(
    "library.channels_last",
    "channels-last saves its routine more reordering than the conversions around it cost",
)
LIBRARY_ROW_MAJOR = Reason(
    "library.row_major", "most loops around it read and write row-major, and its rows are reduced"
)
LIBRARY_FROZEN = Reason(
    "library.frozen",
    "it depends only on parameters, so it is computed once and reused until one of them changes",
)
LIBRARY_SCALE = Reason(
    "library.scale", "its scale and shift of each channel become part of the convolution's weight and bias"
)
LIBRARY_RELU = Reason(
    "library.relu", "the library adds the shift of each channel and what is added to it, and applies ReLU"
)
LIBRARY_ACTIVATION = Reason("library.activation", "the convolution's routine applies it")
LIBRARY_DEPTHWISE = Reason(
    "library.depthwise",
    "it is depthwise, moves by a stride or is fused with its reader: loops are faster than the library",
)
LIBRARY_NARROW = Reason(
    "library.narrow",
    "its input has few channels, which the library pads to a vector: loops gather and multiply what there is",
)
LIBRARY_FLIPPED = Reason(
    "library.flipped",
    "it is the depthwise convolution of a gradient with the flipped filter, which the library computes faster",
)
LIBRARY_CHEAPEST = Reason("library.cheapest", "no other way to compute it takes less time by the model")
LIBRARY_NO_TEMPLATE = Reason(
    "library.no_template", "the target cannot generate this contraction, so a library routine runs it"
)
