"""Folders of image files: by class, ROOT/train/CLASS/*.jpg and ROOT/val (or ROOT/test) likewise, as
ImageNet is laid out; with their classes in ROOT/labels.csv; or without.
"""

from __future__ import annotations

import csv
import os
import re
import stat
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from clsweep.data.locations import DataPlace
from clsweep.data.readers.companions import (
    file_kind,
    holds_classes,
    masks_beside,
    shown_names,
    without_companions,
)
from clsweep.data.sources import (
    DATA_PARTS,
    HELD_OUT,
    IMAGE_SUFFIXES,
    DataLayout,
    classes_error,
    files_digest,
    layout_error,
    list_counts,
    stamp,
)
from clsweep.errors import listed

# torchvision's
_AN_IMAGE = f"at least one image ({', '.join(IMAGE_SUFFIXES)})"
LABELS_TABLE = "labels.csv"
_FILES = ("filename", "file_name", "file", "image", "path")
_LABELS = ("label", "class", "target")
_SPLITS = ("split", "subset", "partition")
_NO_CLASS = ("", "-1", "-1.0", "nan", "<na>")  # the last two are what Python writes for none
# Folders that others name after the parts: to train on, and held out.
_PART = re.compile(
    r"(?<![a-z])((train(ing)?|trn|unlabell?ed)|(?:val(id(ation)?)?|test(ing)?|dev|eval(uation)?"
    r"|hold-?out))(?![a-z])"
)

_Rows = dict[str, list[tuple[int, str]]]  # of each part: number of the class, path below the root


def folders_layout(place: DataPlace) -> DataLayout:
    """The images of a folder by class, or those that its table names."""
    root = place.root_folder
    folders = _folders(root / "train") if _is_folder(root / "train") else []
    if (root / LABELS_TABLE).is_file() and not holds_classes(folders, has_table=True):
        return _of_table(root)
    classes, rows = scan_classes(root)
    require_one_part(root, [path for _, path in rows["train"]])
    return _of_paths(root, rows, classes)


def flat_folder_layout(place: DataPlace) -> DataLayout:
    """Images without classes: below ROOT/train and ROOT/val or ROOT/test, or all below ROOT."""
    root = place.root_folder
    if not _is_folder(root):
        raise layout_error(root, "a folder of images", "no such folder")
    is_split, held_out = _is_folder(root / "train"), _held_out(root)
    folders = {"train": root / "train" if is_split else root}
    if is_split and held_out:
        folders["test"] = root / held_out
    rows: _Rows = {}
    for part, folder in folders.items():
        names = without_companions(_below(folder))
        rows[part] = [(-1, str((folder / name).relative_to(root))) for name in names]
        if not rows[part]:
            raise layout_error(folder, f"{_AN_IMAGE} in it or below", "none")
    require_one_part(root, [path for _, path in rows["train"]])
    return _of_paths(root, rows, ())


def require_one_part(
    place: object, paths: Iterable[str], instead: str = "images of one part alone"
) -> None:
    """RequestError where folders of images to train on differ by the word for a part alone, as
    `train2017` and `val2017` do: images to score would be trained on.
    """
    inner = {os.path.dirname(path) for path in paths}
    parts: dict[tuple[str, str], dict[bool, str]] = {}
    for folder in sorted({*inner, *(str(above) for at in inner for above in Path(at).parents)}):
        parent, name = os.path.split(folder)
        if word := _PART.search(name.lower()):
            rest = re.sub("[^a-z]", "", name.lower()[: word.start()] + name.lower()[word.end() :])
            beside = parts.setdefault((parent, rest), {})
            beside.setdefault(word[2] is not None, folder)
            if len(beside) > 1:
                expected = f"train/ and val/ or test/ in it, or {instead}"
                raise layout_error(place, expected, listed(sorted(beside.values())))


def _of_paths(root: Path, rows: _Rows, classes: tuple[str, ...], *beside: str) -> DataLayout:
    import numpy as np

    def size(path: str) -> int:
        try:
            return os.path.getsize(root / path)
        except OSError:
            return -1  # decoding will say what is wrong with it

    texts = [(name, zlib.crc32((root / name).read_bytes())) for name in beside]
    return DataLayout(
        root=root, classes=classes, unread=_unread(root, rows, *beside),
        labels={
            part: np.array([n for n, _ in rows.get(part, ())], np.int64) for part in DATA_PARTS
        },
        digest=files_digest(
            [*((path, size(path)) for part in rows for _, path in rows[part]), *texts]
        ),
        describe=lambda: (f"{n} {at} {stamp(root / at)}" for part in rows for n, at in rows[part]),
        name=lambda part, row: str(root / rows[part][row][1]),
        open=lambda part, row: root / rows[part][row][1],
    )  # fmt: skip


def _of_table(root: Path) -> DataLayout:
    """Images that ROOT/labels.csv names, each once, by their path below ROOT or by a name that no
    other has. Those of ROOT/val or ROOT/test are held out, as in `scan_classes`, or those whose
    split the table calls so. An empty class is none, and so is -1 or nan.
    """
    table, classes, splits = root / LABELS_TABLE, dict[str, str](), dict[str, str]()
    there, unread, parts_by = _below(root), Counter[str](), ""
    pictures = without_companions(there)
    known = {composed(n): n for n in there} | _by_own_name(there) | _by_own_name(pictures)
    for at, row in _lines(table):
        names_of = [next((n for n in of if n in row), None) for of in (_FILES, _LABELS, _SPLITS)]
        file, label, split = (None if name is None else row[name] for name in names_of)
        others = (name or "without a name" for name in row if name not in names_of)
        unread = unread or Counter(f"column {name}" for name in others)
        if file is None or label is None:
            expected = f"columns {' or '.join(_FILES)}, and {' or '.join(_LABELS)}"
            raise layout_error(table, expected, listed([*row]))
        name = known.get(composed(os.path.normpath(file.replace("\\", "/"))), "")
        if not name:
            last = re.split(r"[/\\]", file)[-1]
            alike = [path for path in pictures if os.path.basename(path) == last]
            which = f", where there are {listed(alike)}" * bool(alike)
            raise layout_error(at, f"one image below {root}", f"{file}{which}")
        if name in classes:
            raise layout_error(at, "an image once", file)
        if split is not None and split.lower() not in ("train", *HELD_OUT):
            raise layout_error(
                at, f"{names_of[2]} train, {' or '.join(HELD_OUT)}", split or "nothing"
            )
        parts_by = f"column {names_of[2]} of {LABELS_TABLE}" if names_of[2] else ""
        splits[name] = name.partition("/")[0] if split is None else split.lower()
        classes[name] = "" if label.lower() in _NO_CLASS else composed(label)
    if missing := [name for name in pictures if name not in classes]:
        raise layout_error(table, f"all images below {root}", f"none of {listed(missing)}")
    _require_classes(table, names := sorted({*classes.values()} - {""}))
    number = {label: i for i, label in enumerate(names)}
    held_out = next((name for name in HELD_OUT if name in splits.values()), None)
    is_split = held_out and "train" in splits.values()
    if parts_by and "train" not in splits.values():
        raise layout_error(table, f"train in {parts_by.partition(' of ')[0]}", held_out)
    parts = {"train": "train", held_out: "test"}
    rows: _Rows = {part: [] for part in DATA_PARTS}
    for name in filter(classes.__contains__, there):
        if part := parts.get(splits[name]) if is_split else "train":
            rows[part].append((number.get(classes[name], -1), name))
    if not parts_by:
        instead = f"a column {_SPLITS[0]} in {LABELS_TABLE}"
        require_one_part(root, [path for _, path in rows["train"]], instead)
    elif is_split:
        unread += Counter(f"split {of}" for of in {*splits.values()} - {"train", held_out})
    layout = _of_paths(root, rows, tuple(number), LABELS_TABLE)
    unread_too = ", ".join(filter(None, [layout.unread, list_counts(unread)]))
    return replace(layout, unread=unread_too, parts_by=parts_by if is_split else "")


def _by_own_name(paths: Sequence[str]) -> dict[str, str]:
    """The paths whose last name no other one has, by that name."""
    names = Counter(map(os.path.basename, paths))
    return {composed(last): path for path in paths if names[last := os.path.basename(path)] == 1}


def _require_classes(table: Path, labels: Sequence[str]) -> None:
    """RequestError for targets of a regression: numbers, of which some are not whole."""
    try:
        parts = [label for label in labels if float(label) % 1]
    except ValueError:
        return
    if parts:
        raise classes_error(table, parts[0], names=", or names")


def _lines(table: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Where each row of a CSV stands, and its cells by the columns' names in small letters."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            rows = [(f"{table}:{reader.line_num}", [*map(str.strip, row)]) for row in reader if row]
    except (OSError, ValueError, csv.Error) as error:
        raise layout_error(table, "a table of images and classes", error) from None
    names = [name.lower() for name in rows[0][1]] if rows else []
    if twice := {name for name in names if name and names.count(name) > 1}:
        raise layout_error(table, "each column once", listed(sorted(twice)))
    for at, cells in rows[1:]:
        if len(cells) != len(names):
            raise layout_error(at, f"{len(names)} cells, as in the first line", len(cells))
        yield at, dict(zip(names, cells, strict=True))


def _unread(root: Path, rows: _Rows, *beside: str) -> str:
    """The other files below the root."""
    used = {*beside, *(path for part in rows for _, path in rows[part])}
    paths = list[str]()
    for at, inside, names in os.walk(root):
        inside[:] = [name for name in inside if not name.startswith(".")]
        below = os.path.relpath(at, root)
        paths += [os.path.join(below, name).removeprefix("./") for name in names]
    return other_files(paths, used)


def other_files(paths: Iterable[str], used: Set[str]) -> str:
    """Files that are not used, by the first folder that they are in, and their ends."""
    others = Counter[str]()
    for path in paths:
        *folders, name = path.split("/")
        if path not in used and not any(each.startswith(".") for each in (*folders, name)):
            leftovers = [folder for folder in folders if not shown_names([folder])]
            kind = "".join(f"{folder}/" for folder in (leftovers or folders)[:1]) + file_kind(path)
            others[path if path == LABELS_TABLE else kind] += 1
    return list_counts(others)


def scan_classes(root: Path) -> tuple[tuple[str, ...], _Rows]:
    """Classes, and the image files below `root` by part, all sorted; `test` lies in ROOT/val or
    ROOT/test, may lack classes of `train`, and is empty where `train` lies alone. Names only, none
    is opened. Those that begin with a dot are left out, and what `shown_names` leaves out.

    Raises:
        RequestError: says folder, expected and given.
    """
    if not (is_folder := _is_folder(root)) or not _is_folder(root / "train"):
        other = f"a folder without train/: {listed(_folders(root))}" if is_folder else ""
        given = other or "no such folder"
        expected = f"train/CLASS/*.jpg and val/ or test/ likewise, or {LABELS_TABLE}"
        raise layout_error(root, expected, given)
    train = _classes(root / "train")
    held_out = _held_out(root)
    if held_out is None and len(folders := _folders(root)) > 1:  # one that is called otherwise
        raise layout_error(root, "val/ or test/ beside train/, or train/ alone", listed(folders))
    test = _classes(root / held_out) if held_out else {}
    if unknown := [name for name in test if name not in train]:
        raise layout_error(root / str(held_out), "classes that train/ has", listed(unknown))
    if len(train) < 2:
        raise layout_error(root / "train", "at least 2 class folders", listed(list(train)))
    require_own_folders(root / "train", [path for paths in train.values() for path in paths])
    number = {name: i for i, name in enumerate(train)}
    rows = {
        part: [(number[c], f"{folder}/{path}") for c, paths in paths_of.items() for path in paths]
        for part, folder, paths_of in (("train", "train", train), ("test", held_out, test))
    }
    return tuple(train), rows


def _held_out(root: Path) -> str | None:
    return next((name for name in HELD_OUT if _is_folder(root / name)), None)


def _classes(folder: Path) -> dict[str, list[str]]:
    """The images of each class, by paths from the folder."""
    names = [name for name in _names(folder) if _is_folder(folder / name)]
    if not names:
        given = f"none: else {LABELS_TABLE} beside {folder.name}/ may name the class of each"
        raise layout_error(folder, "a folder of images for each class", given)
    inside = {name: without_companions(_below(folder / name)) for name in names}
    if empty := [name for name, files in inside.items() if not files]:
        others = f" (and {len(empty) - 1} more such folders)" if len(empty) > 1 else ""
        raise layout_error(folder / empty[0], f"{_AN_IMAGE} in it or below", f"none{others}")
    classes: dict[str, list[str]] = {}
    for name, files in inside.items():
        classes.setdefault(composed(name), []).extend(f"{name}/{file}" for file in files)
    return classes


def require_own_folders(place: object, paths: Sequence[str]) -> None:
    """RequestError where classes are folders of pictures and masks, or one has a folder of another
    one's name, as where an archive holds its content twice. `paths` begin with their class.
    """
    classes = {path.partition("/")[0] for path in paths}
    if masks := masks_beside(sorted(classes)):
        raise layout_error(place, "a folder for each class", listed(masks))
    for folders in (path.split("/")[:-1] for path in paths):
        if len(folders) > 1 and folders[1] != folders[0] and folders[1] in classes:
            given = f"{folders[0]}/{folders[1]} beside {folders[1]}"
            raise layout_error(place, "a folder for each class", given)


def composed(name: str) -> str:
    """A name to compare: macOS writes accents as letters of their own."""
    return unicodedata.normalize("NFC", name)


def _below(folder: Path) -> list[str]:
    """The images in a folder and in those inside it, which may be links: sorted paths from it."""
    paths, seen = list[str](), {str(above) for above in folder.resolve().parents}
    for at, inside, names in os.walk(folder, onerror=_refuse, followlinks=True):
        if (real := os.path.realpath(at)) in seen:  # a link back
            inside.clear()
            continue
        seen.add(real)
        inside[:] = shown_names(inside)
        paths += [
            os.path.join(at, name)
            for name in shown_names(names)
            if name.lower().endswith(IMAGE_SUFFIXES)
        ]
    above = os.path.join(folder, "")
    return sorted(path.removeprefix(above) for path in paths)


def _folders(folder: Path) -> list[str]:
    return [name for name in _names(folder) if (folder / name).is_dir()]


def _is_folder(path: Path) -> bool:
    """RequestError where that cannot be known: a whole class would be lost without a word."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.is_symlink():
            return False
        raise layout_error(path, "a folder", error) from None


def _names(folder: Path) -> list[str]:
    try:
        return shown_names(os.listdir(folder))
    except OSError as error:
        _refuse(error)


def _refuse(error: OSError) -> NoReturn:
    raise layout_error(error.filename, "a readable folder", error) from None
