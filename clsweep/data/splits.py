"""Which images are trained on, validated on, and left out: by class, and always the same."""

import numpy as np

# Every trial of every study is validated on the same images, whatever its seed: scores are paired.
SPLIT_SEED = 0


def some_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """Rows of `count` images of labels (N,), sorted, in proportion. Fewer are part of more."""
    if count >= len(labels):
        return np.arange(len(labels))
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
    # the place of each image within its class, as a share of it
    place = np.arange(len(labels)) - np.repeat(starts, sizes)
    share = (place + 0.5) / np.repeat(sizes, sizes)
    return np.sort(by_class[np.argsort(share, kind="stable")[:count]])


def stratified(labels: np.ndarray, num_held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows kept and rows held out, both sorted, classes in proportion: of labels (N,), each class
    twice at least, and at least as many rows on each side as there are classes.

    The rows that scikit-learn's `train_test_split` draws. To import that takes longer than many a
    trial.

    Raises:
        ValueError: fewer.
    """
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    num_kept = len(labels) - num_held_out
    if counts.min() < 2:
        raise ValueError(f"one image alone is of class {classes[counts.argmin()]}")
    if min(num_kept, num_held_out) < len(classes):
        raise ValueError(f"{num_kept} and {num_held_out} images, of {len(classes)} classes")
    rng = np.random.RandomState(seed)
    kept_of = _in_proportion(counts, num_kept, rng)
    held_of = _in_proportion(counts - kept_of, num_held_out, rng)
    others, held_out = [], []
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    for rows, num, rest in zip(by_class, kept_of, held_of, strict=True):
        drawn = rows[rng.permutation(len(rows))]
        others.append(drawn[:num])
        held_out.append(drawn[num : num + rest])
    return np.sort(np.concatenate(others)), np.sort(np.concatenate(held_out))


def _in_proportion(counts: np.ndarray, total: int, rng: np.random.RandomState) -> np.ndarray:
    """`total` shared out as `counts` are: rounded down, and one more for the largest remainders."""
    exact = counts / counts.sum() * total
    shares = np.floor(exact)
    remainders = exact - shares
    missing = int(total - shares.sum())
    for value in np.unique(remainders)[::-1]:
        if missing <= 0:
            break
        equal = np.flatnonzero(remainders == value)
        more = rng.choice(equal, size=min(len(equal), missing), replace=False)
        shares[more] += 1
        missing -= len(more)
    return shares.astype(int)
