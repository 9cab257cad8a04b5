"""A whole worker. Start `lessor up`, run this, and submit: lessor submit greetings '"world"' --wait"""

import lessor

worker = lessor.Worker(concurrency=4)


@worker.handler("greetings")
def greet(task: lessor.Task) -> str:
    return f"Hello, {task.payload}!"


worker.run()
