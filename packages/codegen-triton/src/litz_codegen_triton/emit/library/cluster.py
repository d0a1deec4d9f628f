"""Programs that run at the same time waiting for one another."""

SOURCE = """
@triton.jit
def litz_meet():
    # all of the cluster arrive with what they wrote, and go on with what any of them wrote
    tl.inline_asm_elementwise(
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 $0, 0;",
        "=r", [], dtype=tl.int32, is_pure=False, pack=1,
    )
"""
