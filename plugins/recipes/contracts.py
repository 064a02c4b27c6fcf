"""How a recipe runs, by its YAML: the contract of a launcher on Slurm, or a manifest on Kubernetes."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, field_validator, model_validator

from plugins.base.errors import ConfigError
from plugins.base.yamlfile import Strict, form
from plugins.recipes.models import Dtype


def compiled(text: str) -> re.Pattern[str]:
    """Compile a pattern from a recipe. Raises ValueError if it is not a regular expression."""
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None


def _is_a_pattern(text: str) -> str:
    compiled(text)
    return text


def _of_one_job(text: str) -> str:
    if "{name}" not in text and "{job}" not in text:
        raise ValueError("a file that is named after neither {name} nor {job} may be another job's")
    return text


PatternText = Annotated[str, AfterValidator(_is_a_pattern)]
"""A text that is a regular expression."""


class Requirement(Strict):
    """Something that must be there before a launch: a path or a shell test, and the command that provides it.

    `squashfs`: the path is an image of this format. `by_setup`: if it is missing, the recipe's set-up makes it.
    """

    what: str
    path: str | None = None
    squashfs: bool = False
    test: str | None = None
    mend: str
    by_setup: bool = True

    @model_validator(mode="after")
    def _an_image_has_a_path(self) -> Self:
        if self.squashfs and self.path is None:
            raise ValueError("squashfs: give the path of the image")
        return self


class Value(Strict):
    """A value that the site file gives for a recipe: what it is, and how to get it (`mend`).

    If there is no `default`, the site must give it. If it is `optional`, "" means that there is none.
    """

    what: str
    mend: str
    default: str | None = None
    optional: bool = False
    pattern: PatternText | None = None


ValueName = Annotated[str, form(r"[a-z_]+", "a name of small letters and underscores")]
Values = dict[ValueName, Value]


def with_defaults(values: Mapping[str, Value], site: Mapping[str, Any]) -> dict[str, Any]:
    """What the site gives, and the default of each value that it does not."""
    return {**{name: value.default for name, value in values.items() if value.default is not None}, **site}


def check_values(recipe: str, values: Mapping[str, Value], site: Mapping[str, Any]) -> None:
    """Raise ConfigError if the site gives no value that the recipe needs, or one that does not match its pattern."""
    for name, value in values.items():
        text = site.get(name, "")
        if text == "" and value.optional:
            continue
        if text == "":
            raise ConfigError(f"{recipe} needs `{name}`, {value.what}: {value.mend}")
        if value.pattern is not None and not re.fullmatch(value.pattern, str(text)):
            raise ConfigError(
                f"{recipe}: `{name}`, {value.what}: {text!r} is not of the form that it needs; {value.mend}"
            )


class Launch(Strict):
    """The contract of a recipe's own launcher: its command, its environment, and the place of its log.

    The backend fills in `{names}`. `command`, `setup` and `requires.test` are bash, so values are quoted
    there; elsewhere they are not.

    Folders: `folder` is the recipe's folder below its stage. `stage` is a folder below the site's stage for
    this recipe alone; it is given if the recipe's set-up writes files whose names other recipes use too.

    `values` are names of this recipe, in addition to those of every launcher (docs/dev/recipes.md), and so are
    `names_by_gpu`, whose values the type of GPU decides. `environment_by_dtype` and `environment_by_size` have the
    variables that only cases of a dtype or of a size get.

    Commands: `venv` activates a Python virtual environment first. `command` is one command, without `&&` or a
    pipe. `setup` runs in the recipe's folder and prints the id of a job. `job_id` is a pattern for the output
    of `command`; its first group is the id.

    Logs: the log's folder is known beforehand (`log_folder`), or `command` prints it (`log_folder_printed`, a
    pattern whose one group is the folder). `log_name` is a pattern of `{name}` and `{job}`; if it has a
    group, the group is the number of restarts. `error_name` is such a pattern for the file with the error
    messages, if that is another file in the same folder. `batch_output` is the path of the batch script's own
    output, with srun's messages, if that is in another folder; `{job}` is filled in too.
    """

    folder: str
    stage: str = ""
    working_folder: str = "{recipe}"
    venv: bool = False
    command: str
    setup: str | None = None
    values: Values = {}
    names_by_gpu: dict[ValueName, dict[str, str]] = {}
    environment: dict[str, str]
    environment_by_dtype: dict[Dtype, dict[str, str]] = {}
    environment_by_size: dict[str, dict[str, str]] = {}
    unset: list[str] = []
    secrets: list[str] = []
    requires: list[Requirement] = []
    job_id: str
    log_folder: str | None = None
    log_folder_printed: str | None = None
    log_name: str
    error_name: str | None = None
    batch_output: Annotated[str, AfterValidator(_of_one_job)] | None = None

    def environment_of(self, dtype: str, size: str) -> dict[str, str]:
        """The variables of a case of this dtype and size."""
        of_dtype = next((own for name, own in self.environment_by_dtype.items() if name == dtype), {})
        return {**self.environment, **of_dtype, **self.environment_by_size.get(size, {})}

    @property
    def log_of_each_start(self) -> bool:
        """Whether each start of a job writes a log of its own. Else it writes into the log of the start before."""
        return compiled(self.log_name.format(name="name", job="job")).groups > 0

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
        return _of_one_job(text)

    @model_validator(mode="after")
    def _one_log_folder(self) -> Self:
        if (self.log_folder is None) == (self.log_folder_printed is None):
            raise ValueError(
                "give either log_folder (known beforehand) or log_folder_printed (by the launcher)"
            )
        return self


# A version of Kubernetes, with the count of its distribution if there is one: v1.33.3-gke.1226000.
_SERVER = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([a-z]+)\.(\d{1,9}))?(?:[-+][\w.+-]*)?", re.ASCII)


def is_version(server: str) -> bool:
    """Whether an API server's version can be compared with another one."""
    return _SERVER.fullmatch(server) is not None


def reaches(server: str, wanted: str) -> bool:
    """Whether an API server has this version or a newer one. If either is no version, the answer is no.

    If `wanted` names a distribution, the server must be of that distribution.
    """
    version, bound = _SERVER.fullmatch(server), _SERVER.fullmatch(wanted)
    if version is None or bound is None or bound[4] not in (None, version[4]):
        return False
    groups = (1, 2, 3, 5) if bound[4] else (1, 2, 3)
    return [int(version[group]) for group in groups] >= [int(bound[group]) for group in groups]


class When(Strict):
    """The cases that an overlay is for: all conditions that are given must hold.

    The case has one of these dtypes, variants and numbers of nodes. The site has a queue or none, and all
    these optional values are `given`. The API server has the version `server` or a newer one; if `server`
    names a distribution (`-gke.1226000`), only servers of that distribution count.
    """

    dtype: list[str] = []
    variant: list[str] = []
    nodes: list[int] = []
    queue: bool | None = None
    given: list[str] = []
    server: (
        Annotated[
            str,
            form(
                r"v[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?",
                "a version such as v1.33.3 or v1.33.3-gke.1226000",
            ),
        ]
        | None
    ) = None


class SiteOverlay(Strict):
    """What is merged into those documents of a manifest that have this kind and name.

    If neither is given, it is merged into all documents. Mappings are merged key by key, lists of named
    things (containers, variables, volumes) by name. Anything else is replaced; null removes a key. `{names}`
    are filled in, also in keys. If a text is one `{name}` and nothing else, it becomes the value itself; but
    if it replaces a text, a number becomes a text.
    """

    kind: str | None = None
    """The kind of the documents that are changed."""

    name: str | None = None
    """The name of the document that is changed."""

    merge: dict[str, Any]
    """The change: a partial document. `null` takes a key out."""


class Remark(Strict):
    """What the check says if an overlay is merged, and what it says if it is left out."""

    merged: str
    left_out: str


class Overlay(SiteOverlay):
    """An overlay of a recipe. If it has a `remark`, the check says whether it is merged."""

    when: When = When()
    remark: Remark | None = None


class Documents(Strict):
    """Objects of a Kubernetes cluster.

    `file` has one or more YAML documents, in the recipe's folder. They are plain Kubernetes YAML: nothing is
    filled in, and kubectl could apply them as they are. `overlay` has what differs between cases and sites;
    the overlays are merged in this order. `values` are names of this recipe, in addition to those of every
    manifest (docs/dev/recipes.md).
    """

    file: str
    values: Values = {}
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
    """The contract of a recipe on a Kubernetes cluster: what is applied, and which output is the log.

    `container` is the container whose log is read. `log_begins` is a pattern that every such log has at its
    beginning and nowhere else. Without it, a log whose beginning is lost cannot be told from a whole one. If
    a bucket has a copy of the log, `log_copy` is its place, with the name of the job's object as `{name}`.
    `setup` is the file, beside this one, that says what a job needs on the cluster beforehand and how that is
    made (`plugins.recipes.setup`).
    """

    container: str
    log_begins: PatternText | None = None
    log_copy: (
        Annotated[str, form(r"(?s)gs://[^/]+/.*\{name\}.*", "gs://BUCKET/PATH with {name} in it")] | None
    ) = None
    setup: str | None = None
