"""`--set KEY=VALUE`: values laid over a study, of which each changes something or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from clsweep.catalog import DATASET
from clsweep.errors import StudyError, listed, nearest
from clsweep.study.check_training import Draft
from clsweep.study.document import (
    Document,
    Keys,
    Setting,
    dotted,
    nothing_to_remove,
    parse_value,
)
from clsweep.study.factors import PARTIAL, FactorCell, level_label, merged_lines
from clsweep.study.space import Objective

_ABSENT = object()
_OF_LEVELS = {"dataset": "dataset", "encoder": "base"}  # factor -> section of its options


def apply_setting(document: Document, text: str) -> None:
    """Lay one `K=V` over a document; a level of a factor goes by its label or its number. Of two
    for one key the last one counts.

    Raises:
        StudyError: it is no `K=V`, no such level is there, the key lies below something that is no
            mapping, or there is nothing to remove. An empty V, as of a shell's empty variable, is
            no value.
    """
    name, separator, written = text.partition("=")
    label = f"--set {text if len(text) <= 80 else text[:80] + '...'}"
    words = name.strip().split(".")
    if not separator or not all(words) or not written.strip():
        expected = "expected KEY=VALUE with a dotted key, as in base.epochs=10; null removes a key"
        raise StudyError(f"{label}: {expected}.")
    if words[0] == "presets":
        bare = f"{'.'.join(words[2:]) or 'KEY'} without presets.{''.join(words[1:2]) or 'NAME'}"
        raise StudyError(f"{label}: presets are laid over the study before. Expected {bare}")
    try:
        value = parse_value(written, label)
    except (yaml.YAMLError, RecursionError):
        raise StudyError(f"{label}: the value is not valid YAML.") from None
    target, keys = _place_of(document, words, label, is_made=value is not None)
    if value is None:
        target.pop(keys[-1])
    else:
        target[keys[-1]] = value
    # what stood there is gone
    places = document.places.items()
    document.places = {at: place for at, place in places if at[: len(keys)] != keys}
    document.places[keys] = label
    others = [each for each in document.settings if each.keys[: len(keys)] != keys]
    document.settings = [*others, Setting(label, keys, value)]


def _place_of(
    document: Document, words: Sequence[str], label: str, *, is_made: bool
) -> tuple[Any, Keys]:
    """The mapping or list that a dotted key leads to, and the key's path; `is_made`: what is
    missing on the way is put there.
    """
    target: Any = document.tree
    keys: Keys = ()
    while True:
        key, words = _first_key(target, keys, words, label)
        keys = (*keys, key)
        is_there = isinstance(target, list) or key in target
        if is_there and words and target[key] is None:  # a section with nothing below it
            is_there = False
        if not is_made and isinstance(target, list) and not words:
            stay = f"null removes no level. Expected {dotted(keys[:2])}, with those that stay"
            raise StudyError(f"{label}: {dotted(keys)}: {stay}")
        if not is_made and not is_there:
            raise StudyError(f"{label}: {dotted(keys)}: {nothing_to_remove(key, target)}")
        if not words:
            return target, keys
        if not is_there:
            target[key] = {}
            document.places[keys] = label
        elif isinstance(target[key], str) and isinstance(target, list):
            target[key] = {"name": target[key]}
        target = target[key]


def _first_key(
    target: Any, keys: Keys, words: Sequence[str], label: str
) -> tuple[Any, Sequence[str]]:
    """The key in a mapping, or the number of a level, that the first words name, and the others; a
    name may hold dots.
    """
    if isinstance(target, dict):
        names = (".".join(words[:length]) for length in range(len(words), 0, -1))
        key = next((name for name in names if name in target), words[0])
        return key, words[1 + key.count(".") :]
    if not isinstance(target, list) or keys[:1] != ("factors",) or len(keys) != 2:
        whole = "; a list is given whole" if isinstance(target, list) else ""
        given = f"expected a mapping, given {target!r:.80}{whole}"
        raise StudyError(f"{label}: {dotted(keys)}: {given}")
    labels = [str(level_label(level)) for level in target]
    for length in range(len(words), 0, -1):  # a label may hold dots
        if (name := ".".join(words[:length])) in labels:
            return labels.index(name), words[length:]
    if words[0].isdecimal() and int(words[0]) < len(labels):
        return int(words[0]), words[1:]
    hint = f"{nearest(words[0], labels)} Expected: {listed(labels)}, or 0 to {len(labels) - 1}"
    raise StudyError(f"{label}: {dotted(keys)}: unknown level '{words[0]:.80}'.{hint}")


def require_used(
    document: Document, drafts: Sequence[Draft], cells: Sequence[FactorCell | None]
) -> tuple[str, ...]:
    """Refuse settings without effect, by the checked studies of all cells; notes on those that
    have none in some cells.

    Raises:
        StudyError: there are any: one line each, with the keys that are taken instead.
    """
    errors, notes = list[str](), list[str]()
    labels = {given.label for given in document.settings}
    for given in document.settings:
        for keys, value in _leaves(given.keys, given.value):
            if document.place(keys) in labels - {given.label}:
                continue  # a later setting's
            reasons = [
                (cell, draft, _no_effect(document.tree, given, path, (keys, value), draft))
                for draft, cell in zip(drafts, cells, strict=True)
                if (path := _path_in(cell, keys, document.tree)) is not None
            ]
            text = f"{given.label}: {dotted(keys)}: has no effect"
            if reasons and all(reason for _, _, reason in reasons):
                errors.append(f"{text}: {reasons[0][-1]}")
            else:
                lines = [
                    (cell, [f"{text}: {reason}"])
                    for cell, draft, reason in reasons
                    # a plan has a note on what an objective does not own
                    if cell
                    and reason
                    and not any(reason in each.skips for each in draft.objectives)
                ]
                notes += merged_lines(lines, num_cells=len(drafts))
    if errors:
        raise StudyError("\n".join(errors))
    return tuple(notes)


def _leaves(keys: Keys, value: Any) -> Iterator[tuple[Keys, Any]]:
    """The values of a setting that are no mappings and no levels, with their paths."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves((*keys, key), child)
    elif isinstance(value, list) and keys[:1] == ("factors",) and len(keys) == 2:
        for number, level in enumerate(value):
            yield from _leaves((*keys, number), level)
    elif value is not None:
        yield keys, value


def _path_in(cell: FactorCell | None, keys: Keys, tree: Mapping[str, Any]) -> Keys | None:
    """The path in the study of a cell, empty for a name or label; None: of another level."""
    if cell is None or keys[0] != "factors":
        return keys
    _, factor, number, *rest = keys
    if level_label(tree["factors"][factor][number]) != cell.levels[str(factor)]:
        return None
    if not rest or rest[0] in ("name", "label"):
        return ()
    return tuple(rest) if rest[0] in PARTIAL else (_OF_LEVELS[str(factor)], *rest)


def _no_effect(
    tree: Mapping[str, Any], given: Setting, path: Keys, leaf: tuple[Keys, Any], draft: Draft
) -> str:
    """Why a value changes nothing in the study of a cell; empty if it does."""
    keys, value = leaf
    if not path or path[0] == "plugins":  # a study has their digests
        return ""
    if (here := _lookup(tree, keys)) != value:
        return f"it is {'not here' if here is _ABSENT else f'{here!r:.80} here'}"
    if (place := draft.document.place(path)) != given.label:
        levels = list(_levels_with(tree, path))
        return f"{place} replaces it." + (f" Expected: {listed(levels)}" if levels else "")
    if path[0] == "dataset":
        return _unread(draft, str(path[1]))
    own = path[2:] if path[0] == "objectives" else path
    return _untaken(path[: len(path) - len(own) + 2], draft) if own[0] in ("base", "space") else ""


def _untaken(unit: Keys, draft: Draft) -> str:
    """Why no objective has the value of a hyperparameter in a base or space; empty if one does."""
    param = str(unit[-1])
    sources = [own[param] for own in draft.sources.values() if param in own]
    if any(unit in each for each in sources):
        return ""
    if sources:
        names = dict.fromkeys(dotted(each[-1]) for each in sources)
        return f"taken instead: {', '.join(names)}"
    skips = (skip for objective in draft.objectives for skip in objective.skips.items())
    return next((reason for reason, names in skips if param in names), "no objective owns it")


def _levels_with(tree: Mapping[str, Any], path: Keys) -> Iterator[str]:
    """The keys of levels that say the same as a path of the study."""
    for factor, section in _OF_LEVELS.items():
        for level in (tree.get("factors") or {}).get(factor, ()):
            for rest in [path, *([path[1:]] if path[0] == section else [])]:
                if isinstance(level, dict) and _lookup(level, rest) is not _ABSENT:
                    yield dotted(("factors", factor, str(level_label(level)), *rest))


def _lookup(tree: Any, keys: Keys) -> Any:
    """The value at a path; `_ABSENT` where there is none."""
    for key in keys:
        if isinstance(tree, dict):
            tree = tree.get(key, _ABSENT)
        elif isinstance(tree, list) and isinstance(key, int) and key < len(tree):
            tree = tree[key]
        else:
            return _ABSENT
    return tree


def _unread(draft: Draft, key: str) -> str:
    """Why a key about the place of images changes nothing; empty if it does, or is another."""
    section = draft.sections.dataset
    transferred = {name for each in draft.objectives for name in _transferred_by(each)}
    others = [draft.transferred.get(n, DATASET[n]) for n in sorted(transferred & {*DATASET})]
    if key == "root":
        read = [draft.dataset, *([] if section.transfer_root else others)]
        is_read, needs = [bool(d.files or d.folder) for d in read], "no files"
    elif key == "download":
        read = [draft.dataset, *others]
        is_read, needs = [bool(d.reader) for d in read], "nothing that can be fetched"
    elif key == "cache":
        from clsweep.data.datasets import is_cached  # needs numpy

        read = [draft.dataset, *others]
        is_remote = "://" in f"{section.root}{section.transfer_root}"
        is_read, needs = [is_remote or is_cached(d) for d in read], "no cache"
    else:
        return ""
    if any(is_read) or any(each.is_own for each in read):
        return ""
    names = " and ".join(each.name for each in read)
    return f"{names} {'need' if len(read) > 1 else 'needs'} {needs}"


def _transferred_by(objective: Objective) -> set[str]:
    """The data sets that an objective's scores are transferred to."""
    name = "transfer_dataset"
    values = objective.space[name].points if name in objective.space else ()
    return {str(value) for value in (objective.fixed.get(name), *values)}
