"""A study on Ray with a logger beside it: what is logged is what is recorded, once, over two
sessions; and a logger that fails stops nothing.
"""

import pytest

import clsweep
from tests.cluster.conftest import clsweep as command
from tests.cluster.test_loggers import scalars_of


@pytest.mark.slow
def test_what_is_logged_is_what_is_recorded(write_study, tmp_path):
    out, log = tmp_path / "out", ("--log", "tensorboard")
    path = write_study(loggers=[{"mlflow": {"uri": "sqlite:////dev/null/none.db"}}])
    code, output = command("run", path, "--out", out, "--limit", "3", *log)
    assert code == 0, output
    assert output.count("mlflow logs no more, the study goes on: ") == 1
    path = write_study()
    code, output = command("run", path, "--out", out, *log)
    assert code == 0, output
    assert "logs no more" not in output
    results = clsweep.open_results(out)
    assert len(results.trials) == 8
    for row in results.trials.to_dict("records"):
        places = (row["objective"], f"config-{row['config']}", f"seed-{row['seed']}")
        found = scalars_of(out.joinpath("tensorboard", *places))
        for name in ("knn_top1", "train_loss", "rankme"):
            epochs = results.epochs.query("trial_id == @row['trial_id']")
            logged = [(step, value) for tag, step, value in found if tag == name]
            assert [step for step, _ in logged] == epochs["epoch"].tolist()
            assert [value for _, value in logged] == pytest.approx(epochs[name].tolist(), rel=1e-6)
