"""Which files of a model are staged, each with its reason: what an engine reads, and nothing it would read wrongly.

An engine streams every `*.safetensors` at the root of the prefix, and before that downloads every other file it finds
there, on each start, whether it needs it or not. So a second copy of the weights is loaded twice, a GGUF file fills the
pod's disk, and an image costs time: whatever is not read must not be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from scripts.staging.source import SourceFile

INDEX = "model.safetensors.index.json"
"""Names the shard of each tensor."""

_OTHER_WEIGHTS = frozenset(
    {
        ".bin", ".pt", ".pth", ".gguf", ".ggml", ".onnx", ".onnx_data", ".h5", ".msgpack", ".ot", ".ckpt", ".tflite",
        ".tensors", ".npz", ".npy", ".pkl", ".pickle", ".nemo", ".mlmodel", ".engine", ".plan",
    }
)  # fmt: skip
_MEDIA = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".ico", ".mp3", ".mp4", ".wav", ".webm", ".pdf"}
)
_TOKENIZER = frozenset({".model", ".tiktoken", ".jinja", ".txt", ".spm", ".bpe", ".vocab"})
_PROSE = re.compile(r"(readme|licen[cs]e|notice|use_policy|usage_policy|changelog|citation)", re.IGNORECASE)
_MODULE_FOLDER = re.compile(r"\d+_[A-Za-z]+")
"""sentence-transformers keeps one folder per module (`1_Pooling/config.json`); engines read them."""
_TEMPLATE_FOLDER = frozenset({"chat_templates", "additional_chat_templates"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What becomes of one file.

    Attributes:
        kept: it is staged.
        reason: why, in a few words.
    """

    file: SourceFile
    kept: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What becomes of every file of a source."""

    choices: tuple[Choice, ...]

    @property
    def kept(self) -> Sequence[SourceFile]:
        """Files that are staged, in the source's order."""
        return [choice.file for choice in self.choices if choice.kept]

    @property
    def dropped(self) -> Sequence[Choice]:
        """The others, with the reason."""
        return [choice for choice in self.choices if not choice.kept]

    @property
    def total_bytes(self) -> int:
        """Bytes that are staged."""
        return sum(file.bytes for file in self.kept)


def select(
    files: Iterable[SourceFile], *, index_names: Collection[str] | None = None, trust_remote_code: bool = False
) -> Selection:
    """Decides for each file.

    Args:
        files: all files of the source.
        index_names: the files that `model.safetensors.index.json` names; None without such a file.
        trust_remote_code: keep Python files: the engine will run them.
    """
    listed = tuple(files)
    rules = _rules(listed, index_names, trust_remote_code=trust_remote_code)
    return Selection(choices=tuple(_choice(file, rules) for file in listed))


Verdict = tuple[bool, str]
Rule = Callable[[PurePosixPath], Verdict | None]


def _choice(file: SourceFile, rules: Sequence[Rule]) -> Choice:
    path = PurePosixPath(file.path)
    for rule in rules:
        verdict = rule(path)
        if verdict is not None:
            return Choice(file=file, kept=verdict[0], reason=verdict[1])
    return Choice(file=file, kept=False, reason="nothing an engine reads")


def _rules(
    files: Sequence[SourceFile], index_names: Collection[str] | None, *, trust_remote_code: bool
) -> Sequence[Rule]:
    """The first rule that speaks decides."""
    weights = _Weights(files, index_names)
    return (_hidden, _original, _other_weights, _media, _prose, weights.rule, _code(trust=trust_remote_code), _read)


def _hidden(path: PurePosixPath) -> Verdict | None:
    if any(part.startswith(".") for part in path.parts):
        return False, "hidden: belongs to git or to a tool"
    return None


def _original(path: PurePosixPath) -> Verdict | None:
    if path.parts[0] == "original":
        return False, "the checkpoint before conversion: engines would download its JSON files"
    return None


def _other_weights(path: PurePosixPath) -> Verdict | None:
    if path.suffix.lower() in _OTHER_WEIGHTS:
        return False, f"weights in another format ({path.suffix}): engines would download them to the pod's disk"
    return None


def _media(path: PurePosixPath) -> Verdict | None:
    return (False, "for people to look at") if path.suffix.lower() in _MEDIA else None


def _prose(path: PurePosixPath) -> Verdict | None:
    suffix = path.suffix.lower()
    if suffix in {".md", ".rst"} or (suffix in {"", ".txt", ".html"} and _PROSE.match(path.name)):
        return False, "for people to read"
    return None


def _code(*, trust: bool) -> Rule:
    def rule(path: PurePosixPath) -> Verdict | None:
        if path.suffix.lower() != ".py":
            return None
        return (True, "remote code, trusted") if trust else (False, "code: kept out unless remote code is trusted")

    return rule


def _read(path: PurePosixPath) -> Verdict | None:
    folder = path.parts[0] if len(path.parts) > 1 else ""
    if folder and not (_MODULE_FOLDER.fullmatch(folder) or folder in _TEMPLATE_FOLDER):
        return False, "in a folder that engines do not read"
    if path.suffix.lower() == ".json":
        return True, "configuration"
    # Mistral's tokenizers carry a version behind the suffix: `tokenizer.model.v3`.
    if path.suffix.lower() in _TOKENIZER or re.search(r"\.model\.v\d+", path.name):
        return True, "tokenizer or template"
    return None


class _Weights:
    """Safetensors files, and the indexes that speak of them."""

    def __init__(self, files: Sequence[SourceFile], index_names: Collection[str] | None) -> None:
        self._index_names = index_names
        root = [path for path in (PurePosixPath(file.path) for file in files) if len(path.parts) == 1]
        self._other_than_consolidated = any(
            path.suffix == ".safetensors" and not _is_consolidated(path) and not _is_adapter(path) for path in root
        )

    def rule(self, path: PurePosixPath) -> Verdict | None:
        if self._other_than_consolidated and _is_consolidated(path) and ".safetensors" in path.suffixes:
            return False, "a second copy of the weights: engines would load both"
        if path.suffix != ".safetensors":
            return None
        if _is_adapter(path):
            return False, "a LoRA adapter: engines read those from a file system, not from a bucket"
        if len(path.parts) == 1 and self._index_names is not None and not self._is_named(path):
            return False, f"not named by {INDEX}: engines would load it on top of the others"
        return True, "weights"

    def _is_named(self, path: PurePosixPath) -> bool:
        return path.name in (self._index_names or ())


def _is_consolidated(path: PurePosixPath) -> bool:
    return len(path.parts) == 1 and path.name.startswith("consolidated")


def _is_adapter(path: PurePosixPath) -> bool:
    return path.name.startswith("adapter_")
