"""A handler that takes its time: it tells its progress, stops when it should, and says what kind of error it met."""

from typing import Any, Dict

import lessor

worker = lessor.Worker(properties={"os": "linux"}, grace_ms=10_000)


@worker.handler("reports")
def report(task: lessor.Task) -> Dict[str, Any]:
    pages = task.payload.get("pages")
    if not isinstance(pages, int):
        raise lessor.DataQuality("pages: must be a whole number")
    for page in range(pages):
        task.checkpoint()
        task.progress(100 * page / pages, f"page {page + 1} of {pages}")
        task.log.info("page %d", page + 1)
    # A store that remembers the highest token it has seen refuses whoever comes late.
    return {"pages": pages, "fence": task.fencing_token}


worker.run()
