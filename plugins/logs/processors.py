"""Who had a machine's processors during a step, as the proxy prints it behind each step (`suites/proxy/cpus.py`). Pure.

cpu sample: {"step": 3, "tflops": 0.21, "share": 0.52, "own_s": 1.52, "others_s": 1.1, "programs": {"firefox": 0.9}, ...}
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

HINT = "cpu sample: "

Seconds = Annotated[float, Field(ge=0, lt=1e9)]
"""A damaged line may hold a number of any length."""


class ProcessorSample(BaseModel):
    """A step and the matrix products behind it, up to the end of these products. All times are in s.

    `tflops` is the mean rate of the products, `share` the part of their threads' time in which the program ran.

    In `seconds` each of the `processors` that the program may use could have run as long. `own_s` is what the program
    and its descendants used of that, `others_s` what other programs used, `stolen_s` what a hypervisor gave to
    other machines, `held_s` what the limit of a cgroup kept from the program; None if the machine does not tell.
    `programs` are the busiest of the others by name.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, defer_build=True)

    step: Annotated[int, Field(ge=0, lt=10**9)]
    tflops: Annotated[float, Field(gt=0, lt=1e9)]
    share: Annotated[float, Field(gt=0, lt=1e3)]
    seconds: Annotated[float, Field(gt=0, lt=1e9)]
    processors: Annotated[int, Field(gt=0, lt=1 << 20)]
    own_s: Seconds
    others_s: Seconds | None = None
    stolen_s: Seconds | None = None
    held_s: Seconds | None = None
    programs: dict[str, Seconds] = {}


def read_sample(line: str) -> ProcessorSample | None:
    """The sample that the line states; None if it is damaged."""
    try:
        return ProcessorSample.model_validate_json(line.partition(HINT)[2])
    except ValidationError:
        return None
