"""Lines of `clsweep plan` on the disk that pictures take, and on how fast they are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clsweep.data.locations import AbsentError
from clsweep.display.numbers import byte_size, count
from clsweep.study.design import Study

_COARSE_LEVEL = 2**14  # as of 12 bits: below it pictures of 16 bits lose most of what they show


def store_lines(study: Study) -> list[str]:
    """Form and bytes of the cache, and the rate at which a trial reads it."""
    from clsweep.data.store_form import estimated_store, highest_sampled

    data, resources = study.dataset, study.sections.resources
    num_bytes, rate = estimated_store(data)
    side = f"the shorter side at most {data.store_size} pixels"
    line = f"Cache: {byte_size(num_bytes, 3)} of {data.store_as}, {side}"
    if not (data.sample and data.sample.pictures):
        line += "; reckoned with ImageNet's JPEGs, as the files are not here"
    lines = [line]
    if rate:
        cores = resources.cpus_per_worker * resources.workers
        lines.append(
            f"A core of this machine decodes {count(round(rate))} images a second; a trial has "
            f"{cores}, and trains on no more than {count(round(rate * cores))} a second"
        )
    if 0 < (level := highest_sampled(data)) < _COARSE_LEVEL:
        lines.append(
            f"note: the pictures of 16 bits reach {count(level)} at most: they use "
            f"{level // 256 + 1} of the 256 steps that are kept. In arrays with dataset.range "
            "they use all"
        )
    return lines


def room_notes(cells: Iterable[Study]) -> list[str]:
    """Bytes of all pictures in each folder of caches: of those in a bucket, which each machine
    copies there, too, and where this machine has too few.
    """
    parts: dict[Path, dict[object, int]] = {}
    of_each_machine: dict[Path, str] = {}  # as the study names it: each machine has its own home
    for cell in cells:
        data, place = cell.dataset, cell.sections.dataset.place
        of_folder = parts.setdefault(place.cache_folder, {})
        form = data.name, place.root, data.store_as, data.store_size, data.channels
        if place.is_remote and (copied := _copied_bytes(cell)):
            of_each_machine[place.cache_folder] = place.cache
            of_folder[place.root] = copied
        if place.root in of_folder or (data.sample and data.sample.pictures):
            from clsweep.data.store_form import estimated_store  # needs Pillow

            of_folder[form], _ = estimated_store(data)
    notes = []
    for folder, of_folder in ((folder, of) for folder, of in parts.items() if of):
        from clsweep.data.store_form import free_bytes

        needed, free = sum(of_folder.values()), free_bytes(folder)
        size, named, is_there = byte_size(needed, 3), of_each_machine.get(folder), "it is"
        line = f"note: the cache takes {size} in {folder}"
        if named:
            line = f"note: copies and cache take {size} in {named} of each machine that trains"
            is_there = "they are"
        if free < needed:
            line += (
                f"; this machine has {byte_size(free, 3)} free there. Unless {is_there} there "
                "already, name another folder with --set dataset.cache=FOLDER"
            )
        if named or free < needed:
            notes.append(line)
    return notes


def _copied_bytes(study: Study) -> int:
    """Of all files of a data set in a bucket; 0 if it cannot be listed."""
    from clsweep.data.buckets import listed_bucket

    try:
        _, objects = listed_bucket(study.sections.dataset.place.root, study.dataset.folder)
    except AbsentError:
        return 0
    return sum(of.size for of in objects.values())
