"""How a recipe is run, as its YAML says: the contract of a launcher on Slurm, or the manifest of a job on Kubernetes."""

from __future__ import annotations

import re
from typing import Annotated
from typing import Any
from typing import Self

from pydantic import AfterValidator
from pydantic import Field
from pydantic import field_validator
from pydantic import model_validator

from plugins.yamlfile import Strict


def compiled(text: str) -> re.Pattern[str]:
    """The pattern that somebody wrote into a recipe. Raises ValueError where it is none."""
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None


def _is_a_pattern(text: str) -> str:
    compiled(text)
    return text


PatternText = Annotated[str, AfterValidator(_is_a_pattern)]
"""A text that is a regular expression."""


class Requirement(Strict):
    """Something that must be there before a launch: a path (or a shell test) and the command that mends it.

    `squashfs`: the path is an image of this format. `by_setup`: the recipe's set-up makes it where it is missing.
    """

    what: str
    path: str | None = None
    squashfs: bool = False
    test: str | None = None
    mend: str
    by_setup: bool = True

    @model_validator(mode="after")
    def _an_image_has_a_path(self) -> Requirement:
        if self.squashfs and self.path is None:
            raise ValueError("squashfs: give the path of the image")
        return self


class Launch(Strict):
    """The contract of a recipe's own launcher: what is run where, with which environment, and where its log goes.

    The backend fills in `{names}`: quoted in `command`, `setup` and `requires.test`, which are bash, as they are
    elsewhere. `folder` is the recipe's folder below its stage. `stage` is a folder of the recipe's own below the
    site's stage, for a recipe whose set-up writes there under names that others use too. `venv` activates a Python
    virtual environment first. `command` is one command, without `&&` or a pipe. `setup` is run in the recipe's folder
    and prints the id of a job.

    `job_id` is a pattern in what `command` prints, whose first group is the id. The log's folder is known beforehand
    (`log_folder`) or printed as well (`log_folder_printed`, a pattern whose one group it is). `log_name` is a pattern of `{name}` and `{job}`; its group, if it
    has one, is the number of restarts. `error_name` likewise: the file beside it that says what went wrong, where that
    is another one. `batch_output` is the path of what the batch script itself says, srun's complaints, where that is in
    another folder; {job} is filled in too.
    """

    folder: str
    stage: str = ""
    working_folder: str = "{recipe}"
    venv: bool = False
    command: str
    setup: str | None = None
    environment: dict[str, str]
    unset: list[str] = []
    secrets: list[str] = []
    requires: list[Requirement] = []
    job_id: str
    log_folder: str | None = None
    log_folder_printed: str | None = None
    log_name: str
    error_name: str | None = None
    batch_output: str | None = None

    @field_validator("job_id")
    @classmethod
    def _has_the_id(cls, text: str) -> str:
        if compiled(text).groups < 1:
            raise ValueError("the pattern needs a group, (...), around the job's id")
        return text

    @field_validator("log_folder_printed")
    @classmethod
    def _has_the_folder(cls, text: str | None) -> str | None:
        if text is not None and compiled(text).groups != 1:
            raise ValueError("the pattern needs one group, (...), around the folder, and no other")
        return text

    @field_validator("log_name", "error_name")
    @classmethod
    def _names_the_job(cls, text: str | None) -> str | None:
        if text is None:
            return None
        try:
            filled = text.format(name="name", job="job")
        except (LookupError, ValueError) as error:
            raise ValueError(
                f"only {{name}} and {{job}} are filled in; write any other brace twice: {error}"
            ) from None
        compiled(filled)
        if "{name}" not in text and "{job}" not in text:
            raise ValueError("a file that is named after neither {name} nor {job} may be another job's")
        return text

    @field_validator("batch_output")
    @classmethod
    def _is_the_jobs_own(cls, text: str | None) -> str | None:
        if text is not None and "{name}" not in text and "{job}" not in text:
            raise ValueError("a file that is named after neither {name} nor {job} may be another job's")
        return text

    @model_validator(mode="after")
    def _one_log_folder(self) -> Launch:
        if (self.log_folder is None) == (self.log_folder_printed is None):
            raise ValueError(
                "give either log_folder (known beforehand) or log_folder_printed (by the launcher)"
            )
        return self


class Value(Strict):
    """Something that the site file gives for a manifest: what it is, and how one comes by it.

    Without a `default` the site must give it. One that is `optional` may be given as "", for none.
    """

    what: str
    mend: str
    default: str | None = None
    optional: bool = False
    pattern: PatternText | None = None


# A version of Kubernetes, and how a distribution counts on from there: v1.33.3-gke.1226000.
_SERVER = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([a-z]+)\.(\d{1,9}))?(?:[-+][\w.+-]*)?", re.ASCII)


def is_version(server: str) -> bool:
    """Whether an API server's version can be compared with another one."""
    return _SERVER.fullmatch(server) is not None


def reaches(server: str, wanted: str) -> bool:
    """Whether an API server is of this version or newer, and of its distribution where it names one; one that is no version is not."""
    found, bound = _SERVER.fullmatch(server), _SERVER.fullmatch(wanted)
    if found is None or bound is None or bound[4] not in (None, found[4]):
        return False
    parts = (1, 2, 3, 5) if bound[4] else (1, 2, 3)
    return [int(found[part]) for part in parts] >= [int(bound[part]) for part in parts]


class When(Strict):
    """The cases that an overlay is for: of these dtypes, variants or numbers of nodes, on a site with a queue or
    without one, where these optional values are `given`, and on an API server of the version `server` or newer.

    A `server` with a distribution (`-gke.1226000`) is met by servers of that distribution alone.
    """

    dtype: list[str] = []
    variant: list[str] = []
    nodes: list[int] = []
    queue: bool | None = None
    given: list[str] = []
    server: str | None = Field(default=None, pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?$")


class SiteOverlay(Strict):
    """What is merged into those documents of a manifest that have this kind and name, or into all of them.

    Mappings key by key, lists of named things (containers, variables, volumes) by name, anything else is replaced; null
    takes a key out. `{names}` are filled in, also in keys; a text that is one name and nothing else becomes the value itself,
    but a number over a text is made a text.
    """

    kind: str | None = None
    name: str | None = None
    merge: dict[str, Any]


class Remark(Strict):
    """What the check says where an overlay is merged, and where it is left out."""

    merged: str
    left_out: str


class Overlay(SiteOverlay):
    """A recipe's own, which may be for some cases alone. With a `remark` the check says which of the two it is."""

    when: When = When()
    remark: Remark | None = None


class Documents(Strict):
    """Objects of a Kubernetes cluster.

    `file` is one or more YAML documents in the recipe's folder. They are Kubernetes' own: nothing is filled in there,
    and kubectl could apply them as they stand. What differs from case to case and site to site comes from `overlay`,
    in this order. `values` are names of the recipe's own, beside those that every manifest has (docs/recipes.md).
    """

    file: str
    values: dict[Annotated[str, Field(pattern=r"^[a-z_]+$")], Value] = {}
    overlay: list[Overlay] = []

    @model_validator(mode="after")
    def _given_may_be_none(self) -> Self:
        optional = [name for name, value in self.values.items() if value.optional]
        for name in (name for overlay in self.overlay for name in overlay.when.given):
            if name not in optional:
                raise ValueError(
                    f"when.given: {name!r} is no optional value; there are: {', '.join(optional) or 'none'}"
                )
        return self


class Manifest(Documents):
    """The contract of a recipe that a Kubernetes cluster runs: what is applied, and whose output is the log.

    `container` is the one whose log is read. `log_begins` is a pattern of what every such log has at its head, and nowhere
    else: without it, a log whose beginning is gone cannot be told from a whole one. `log_copy` is where a bucket has the log too, of the job whose object is
    `{name}`. `setup` is the file, beside this one, that says what such a job needs on the cluster beforehand and how
    that is made (`plugins.recipes.setup`).
    """

    container: str
    log_begins: PatternText | None = None
    log_copy: str | None = Field(default=None, pattern=r"^gs://[^/]+/.*\{name\}")
    setup: str | None = None
