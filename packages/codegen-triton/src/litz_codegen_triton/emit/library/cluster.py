"""The barrier of a thread-block cluster."""

SOURCE = """
@triton.jit
def litz_meet():
    # release this CTA's writes, wait for every CTA of the cluster, acquire their writes
    tl.inline_asm_elementwise(
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 $0, 0;",
        "=r", [], dtype=tl.int32, is_pure=False, pack=1,
    )
"""
