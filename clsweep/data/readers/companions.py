"""Files beside pictures that are none: leftovers of file managers and archives, thumbnails, and the
masks of segmentations. Names alone say it, no file is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from clsweep.data.sources import IMAGE_SUFFIXES

# Synology's thumbnails, its and QNAP's bins and snapshots, macOS's in zips, Windows' bin.
_LEFTOVERS = {"@eadir", "@tmp", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"}
_LEFTOVERS |= {"__macosx", "$recycle.bin", "system volume information", "lost+found"}
_LEFTOVERS |= {"thumbnails", "_thumbnails", "thumbs.db"}
_THUMBNAILS = ("synophoto_thumb", "synofile_thumb", "synoindex_media")
_THUMB = re.compile(r"(?<![a-z])thumb(nail)?s?(?![a-z])")  # of a picture, not a thumbtack
# Ends of a mask's name, which may be numbered, as `0_mask_1.png`; folders of masks.
_ENDS = r"masks?|seg(?:mentation)?s?|superpixels?|trimaps?|ground[-_ ]?truths?|gt"
_MASK = re.compile(rf"(?<=[-_. ])({_ENDS})([-_. ]?[0-9]+)?$")
_MASKS = re.compile(rf"{_ENDS}|segmentation(class|object)|annot(ation)?s?|labels?")
_MORE_MASKS = re.compile(rf"(.*[-_. ])?({_MASKS.pattern})([-_. ].*)?")  # `train_masks`
# Folders of the pictures themselves, beside those of their masks or thumbnails.
_IMAGES = re.compile(r"(jpeg)?images?|imgs?|photos?|pictures?|originals?|large|full|raw|frames?")


def _visible(names: Sequence[str]) -> list[str]:
    """Sorted, without those that begin with a dot."""
    return sorted(name for name in names if not name.startswith("."))


def shown_names(names: Sequence[str]) -> list[str]:
    """Those that are visible, without what file managers and archives leave."""
    return [
        name
        for name in _visible(names)
        if name.lower() not in _LEFTOVERS and not name.lower().startswith(_THUMBNAILS)
    ]


def without_companions(paths: Sequence[str], num_outer: int = 0) -> list[str]:
    """Without thumbnails and masks of pictures among them: `0_thumb.png`, `0_mask.png` and
    `masks/0.jpg` beside `0.png` or `images/0.png`. A picture called so that no other belongs to
    stays: it may show a thumb.

    num_outer: folders that a path begins with and that are no words for this: part and class.
    """

    marked = {path for path in paths if _word("/".join(path.split("/")[num_outer:]))}
    if not marked:
        return [*paths]

    def place(path: str) -> tuple[str, str]:
        """Folders but those that tell pictures and companions apart; the last name."""
        *folders, name = path.lower().split("/")
        outer, inner = folders[:num_outer], folders[num_outer:]
        kinds = _THUMB, _MORE_MASKS, _IMAGES
        outer += [each for each in inner if not any(kind.fullmatch(each) for kind in kinds)]
        return "/".join(outer), name

    pictures = {place(path) for path in paths if path not in marked}
    pictures |= {(folder, os.path.splitext(name)[0]) for folder, name in pictures}

    def shows_another(path: str) -> bool:
        folder, name = place(path)
        stem = os.path.splitext(name)[0]
        names = [stem]
        if _THUMB.search(path.lower()):
            for at in re.finditer(rf"{_THUMB.pattern}|[-_. ]", stem):
                names += [stem[: at.start()], stem[at.end() :]]
        elif mask := _MASK.search(stem):
            names.append(stem[: mask.start() - 1])
        return any((folder, each) in pictures for each in names)

    return [path for path in paths if path not in marked or not shows_another(path)]


def holds_classes(names: Sequence[str], *, has_table: bool) -> bool:
    """True where folders of images to train on are classes: not where a table has the classes and
    the folders are called as those of pictures and masks are.
    """
    kinds = _IMAGES, _MASKS, _THUMB
    return any(not has_table or not any(k.fullmatch(name.lower()) for k in kinds) for name in names)


def masks_beside(names: Sequence[str]) -> list[str]:
    """Folders of pictures and of their masks, where both are there."""
    both = [[n for n in names if kind.fullmatch(n.lower())] for kind in (_IMAGES, _MASKS)]
    return [each[0] for each in both] if all(both) else []


def file_kind(path: str) -> str:
    """A file's end, and the word by which it is a companion: `*.txt`, `*mask*.png`."""
    word = _word(path)
    return f"*{f'{word}*' * bool(word)}{os.path.splitext(path)[1]}"


def _word(path: str) -> str:
    """The word by which a picture's name or folders say that it may belong to another, or empty."""
    *folders, name = path.lower().split("/")
    if not name.endswith(IMAGE_SUFFIXES):
        return ""
    if _THUMB.search(path.lower()):
        return "thumb"
    mask = _MASK.search(os.path.splitext(name)[0])
    return mask[1] if mask else next((n for n in folders if _MORE_MASKS.fullmatch(n)), "")
