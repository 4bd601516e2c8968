"""Whether a study's data sets are on this machine, and what is made of them before trials run."""

from __future__ import annotations

from clsweep.data.availability import require_data
from clsweep.data.found import cache_room
from clsweep.errors import RequestError
from clsweep.study.design import Study, split_columns
from clsweep.study.document import preset_names


def require_files(study: Study) -> None:
    """Look for the files of every data set that is not to be fetched; reads none of them.

    Raises:
        RequestError: they are missing; says where they are looked for, and what else would do.
    """
    for cell in study.cells or (study,):
        place = cell.sections.dataset.place
        others = {str(o.fixed.get("transfer_dataset", "none")) for o in cell.objectives} - {"none"}
        if place.download:
            continue
        try:
            require_data(cell.dataset.name, place.root_folder)
            for name in sorted(others):
                require_data(name, place.transferred.root_folder)
        except RequestError as error:
            presets = preset_names(study.document.source)
            hint = f" This study has the presets: {', '.join(presets)}." if presets else ""
            raise RequestError(study.document.error(("dataset",), f"{error}{hint}")) from None


def prepare_files(study: Study) -> None:
    """Make of the data sets what trials read, and say what is wrong with a user's own images.

    Raises:
        RequestError: they are missing or damaged, or the disk has no room.
    """
    from clsweep.data.datasets import load_splits
    from clsweep.data.sources import prepare

    require_files(study)
    for cell in study.cells or (study,):
        place = cell.sections.dataset.place
        cache_room(cell.dataset, place)
        prepare(cell.dataset, place)
        if cell.dataset.files:
            load_splits(split_columns(cell), place)
