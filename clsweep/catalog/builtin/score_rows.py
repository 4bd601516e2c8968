"""Every built-in metric and diagnostic."""

from __future__ import annotations

from clsweep.catalog.rows import Diagnostic, Metric

# Shares of the labels that fine-tuning knows, by what the metrics call them.
FINETUNE_SHARES = {0.01: "1pct", 0.1: "10pct", 1.0: "100pct"}
_LAYER = ("feature_layer",)
_CLASSIFIER = "clsweep.train.accuracy:classifier_scores"
_TRANSFER = ("transfer_dataset", "feature_layer")
METRICS = (
    Metric(name="knn_top1", mode="max", part="knn_weights", owns=_LAYER, every_epoch=True,
           guesses=1, doc="k-nearest-neighbour accuracy of the features (knn_weights)"),
    Metric(name="knn_top5", mode="max", part="knn_weights", owns=_LAYER, every_epoch=True,
           guesses=5, doc="share of images whose class is among the five with the most kNN votes"),
    Metric(name="linear_top1", mode="max", part="linear_probe", owns=_LAYER, guesses=1,
           doc="accuracy of a linear classifier on the frozen features (linear_probe)"),
    Metric(name="linear_top5", mode="max", part="linear_probe", owns=_LAYER, guesses=5,
           doc="share of images whose class is among the classifier's five best"),
    Metric(name="classifier_top1", mode="max", impl=_CLASSIFIER, of="classifier", every_epoch=True,
           guesses=1, doc="accuracy of the classifier that supervised has trained"),
    Metric(name="classifier_top5", mode="max", impl=_CLASSIFIER, of="classifier", every_epoch=True,
           guesses=5, doc="share of images whose class is among that classifier's five best"),
    Metric(name="finetune_1pct_top1", mode="max", part="finetune", guesses=1,
           doc="accuracy of encoder and classifier fine-tuned on 1 % of the labels (finetune)"),
    Metric(name="finetune_10pct_top1", mode="max", part="finetune", guesses=1,
           doc="the same on 10 % of the labels"),
    Metric(name="finetune_100pct_top1", mode="max", part="finetune", guesses=1,
           doc="the same on all labels"),
    Metric(name="transfer_linear_top1", mode="max", part="linear_probe", owns=_TRANSFER,
           of="transfer", guesses=1,
           doc="linear_top1 of the frozen encoder on another data set (transfer_dataset)"),
    Metric(name="transfer_finetune_100pct_top1", mode="max", part="finetune",
           owns=("transfer_dataset",), of="transfer", guesses=1,
           doc="finetune_100pct_top1 on another data set (transfer_dataset)"),
    Metric(name="rankme", mode="max", unit="", impl="clsweep.train.spectrum:rankme",
           takes=("features_ND",), owns=_LAYER, every_epoch=True,
           doc="smooth rank of the features; needs no labels (Garrido et al. 2023)"),
    Metric(name="lidar", mode="max", unit="", impl="clsweep.train.spectrum:lidar",
           takes=("views_NVD",), owns=("feature_layer", "lidar_views"), every_epoch=True,
           doc="smooth rank of what tells images apart, beside what views of one image differ by; "
               "needs lidar_views, no labels (Thilak et al. 2024)"),
    Metric(name="alpha_req", mode="min", unit="", impl="clsweep.train.spectrum:alpha_req",
           takes=("features_ND",), owns=_LAYER, every_epoch=True,
           doc="|alpha - 1| of spectrum_decay; needs no labels (Agrawal et al. 2022)"),
    Metric(name="alignment", mode="min", unit="", impl="clsweep.train.diagnostics:alignment",
           takes=("z1_ND", "z2_ND"), every_epoch=True,
           doc="of two views of scored images, 0 to 4; 0: the views agree, as in a collapse; needs "
               "no labels (Wang & Isola 2020; DCL A.5)"),
    Metric(name="uniformity", mode="min", unit="", impl="clsweep.train.diagnostics:uniformity",
           takes=("z1_ND",), every_epoch=True,
           doc="on the hypersphere; 0: all in one point, -4: spread evenly, as noise is; needs no "
               "labels (Wang & Isola 2020; DCL A.5)"),
    Metric(name="mi_estimate", mode="max", kind="pairs", unit="nats",
           impl="clsweep.train.mutual_information:mi_estimate", owns=("estimate_batches",),
           doc="of the mutual information: with infonce a lower bound, log(1 + K) - l; with eqco "
               "log(1 + alpha) - l, which may lie above the truth (EqCo Fig. 1)"),
)  # fmt: skip

_Q_B, _GRAD_NORM = "clsweep.train.diagnostics:q_b", "clsweep.train.diagnostics:grad_norm"
_QUERY_GRAD_NORM = "clsweep.train.diagnostics:query_grad_norm"
DIAGNOSTICS = (
    Diagnostic(name="q_b_mean", impl=_Q_B, takes=("objective", "prepared", "config"),
               summary="mean", histogram=True, source="DCL Eq. 4",
               doc="negative-positive coupling multiplier of the epoch's anchors"),
    Diagnostic(name="q_b_cv", impl=_Q_B, takes=("objective", "prepared", "config"), summary="cv",
               source="DCL Fig. 1", doc="its coefficient of variation"),
    Diagnostic(name="grad_norm_mean", impl=_GRAD_NORM, takes=("watched",), summary="mean",
               source="DCL A.9", doc="gradient norm of the last two blocks"),
    Diagnostic(name="grad_norm_cv", impl=_GRAD_NORM, takes=("watched",), summary="cv",
               source="DCL A.9", doc="its coefficient of variation"),
    Diagnostic(name="query_grad_norm_mean", impl=_QUERY_GRAD_NORM,
               takes=("objective", "prepared", "config"), summary="mean",
               source="EqCo Theorem 2, Fig. 4",
               doc="norm of the gradient of each query's loss in the query, mean of the epoch's "
                   "queries"),
    Diagnostic(name="query_grad_norm_cv", impl=_QUERY_GRAD_NORM,
               takes=("objective", "prepared", "config"), summary="cv", source="EqCo Fig. 4",
               doc="its coefficient of variation"),
    Diagnostic(name="mi_bound", impl="clsweep.train.diagnostics:mi_bound",
               takes=("config", "base_loss"), unit="nats", source="EqCo Eq. 4",
               doc="of the mutual information between the views: with infonce a lower bound, with "
                   "eqco an estimate, which may lie above the truth"),
    Diagnostic(name="spectrum_decay", impl="clsweep.train.spectrum:spectrum_decay",
               takes=("features_ND",), source="Agrawal et al. (2022) Eq. 1",
               doc="alpha of the eigenvalues j^-alpha of the features' covariance"),
    Diagnostic(name="feature_diversity", impl="clsweep.train.diagnostics:feature_diversity",
               takes=("z1_ND", "z2_ND"), source="DimCL Eq. 7",
               doc="of the dimensions, across two views, 0 to 1"),
    Diagnostic(name="effective_rank", impl="clsweep.train.diagnostics:effective_rank",
               takes=("z1_ND",), source="Roy & Vetterli (2007)",
               doc="dimensions that the representation uses, 1 to their number"),
    Diagnostic(name="std_per_dim", impl="clsweep.train.diagnostics:std_per_dim", takes=("z1_ND",),
               source="SimSiam (2021)", doc="1 isotropic, 0 collapsed"),
    Diagnostic(name="intra_class_distance", impl="clsweep.train.diagnostics:intra_class_distance",
               takes=("features_ND", "labels_N", "num_classes"), source="DimCL Table 12",
               doc="mean Euclidean distance of features of length 1 to the centroid of their "
                   "class, 0 to 1; the paper gives no formula"),
    Diagnostic(name="inter_class_distance", impl="clsweep.train.diagnostics:inter_class_distance",
               takes=("features_ND", "labels_N", "num_classes"), source="DimCL Table 12",
               doc="mean Euclidean distance between the centroids of two classes, 0 to 2"),
)  # fmt: skip
