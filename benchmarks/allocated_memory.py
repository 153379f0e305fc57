"""Peak memory of a piece of work on the CPU."""

from collections.abc import Callable


def allocated_peak(work: Callable[[], object]) -> int:
    """Return the greatest number of bytes that ``work`` holds at a time in tensors, beyond what was there before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    assert recorded.profiler is not None
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
