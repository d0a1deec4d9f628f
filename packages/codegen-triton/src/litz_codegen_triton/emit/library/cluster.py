"""The barrier of a thread-block cluster, and loads from shared memory."""

SOURCE = """
@triton.jit
def litz_meet():
    # release this CTA's writes, wait for every CTA of the cluster, acquire their writes
    tl.inline_asm_elementwise(
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 $0, 0;",
        "=r", [], dtype=tl.int32, is_pure=False, pack=1,
    )


@triton.jit
def litz_shared_32(address):
    return tl.inline_asm_elementwise(
        "ld.shared.b32 $0, [$1];", "=r,r", [address], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def litz_shared_64(address):
    return tl.inline_asm_elementwise(
        "ld.shared.b64 $0, [$1];", "=l,r", [address], dtype=tl.int64, is_pure=False, pack=1
    )
"""
