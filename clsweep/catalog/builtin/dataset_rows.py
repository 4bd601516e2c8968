"""Every built-in data set."""

from __future__ import annotations

from clsweep.catalog.rows import Dataset

DATASETS = (
    Dataset(name="digits", impl="clsweep.data.datasets:digits", num_train=1437, num_test=360,
            image_size=8, channels=1, num_classes=10,
            doc="handwritten digits embedded in scikit-learn; needs no download"),
    Dataset(name="fashion_mnist", impl="clsweep.data.datasets:idx_arrays", num_train=60_000,
            num_test=10_000, image_size=28, channels=1, num_classes=10, folder="FashionMNIST/raw",
            layout=("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                    "t10k-labels-idx1-ubyte"),
            reader="FashionMNIST", doc="Fashion-MNIST, torchvision's folder layout"),
    Dataset(name="cifar10", impl="clsweep.data.datasets:torchvision_arrays", num_train=50_000,
            num_test=10_000, image_size=32, channels=3, num_classes=10,
            folder="cifar-10-batches-py", reader="CIFAR10",
            layout=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
            doc="CIFAR-10, torchvision's folder layout"),
    Dataset(name="cifar100", impl="clsweep.data.datasets:torchvision_arrays", num_train=50_000,
            num_test=10_000, image_size=32, channels=3, num_classes=100, folder="cifar-100-python",
            layout=("train", "test", "meta"), reader="CIFAR100",
            doc="CIFAR-100, torchvision's folder layout"),
    Dataset(name="stl10", impl="clsweep.data.datasets:stl10", num_train=5_000,
            num_unlabeled=100_000, num_test=8_000, image_size=96, channels=3, num_classes=10,
            folder="stl10_binary", reader="STL10",
            layout=("train_X.bin", "train_y.bin", "unlabeled_X.bin", "test_X.bin", "test_y.bin"),
            arrays="clsweep.data.datasets:stl10_files",
            doc="STL-10, torchvision's folder layout; 100,000 more images without a class"),
    *(
        Dataset(name=name, impl="clsweep.data.datasets:from_cache", num_train=0, num_test=0,
                image_size=224, channels=3, num_classes=0,
                options=("image_size", "num_train", "num_test", "num_classes"),
                arrays="clsweep.data.sources:image_source", files=files,
                keeps_whole=name != "arrays", doc=doc)
        for name, files, doc in (
            ("imagefolder", "clsweep.data.readers.folders:folders_layout",
             "your own images: ROOT/train/CLASS/*.jpg and ROOT/val or ROOT/test"),
            ("imagefiles", "clsweep.data.readers.folders:flat_folder_layout",
             "your own images without classes: all below ROOT, or ROOT/train and ROOT/val"),
            ("arrays", "clsweep.data.readers.arrays:arrays_layout",
             "your own arrays of 1 to 64 channels, 8 or 16 bit: ROOT is an .npz or a folder of "
             ".npy"),
            ("huggingface", "clsweep.data.readers.hugging_face:hugging_face_layout",
             "a folder of Hugging Face's datasets: save_to_disk, or Parquet files"),
            ("webdataset", "clsweep.data.readers.shards:shards_layout",
             "your own tar files: ROOT/train-*.tar and ROOT/val-*.tar"),
        )
    ),
    Dataset(name="synthetic", impl="clsweep.data.datasets:textures", num_train=10_000,
            images_digest="version 2",
            num_test=2_000, image_size=32, channels=3, num_classes=10,
            options=("image_size", "num_train", "num_classes"),
            arrays="clsweep.data.datasets:synthetic_images",
            doc="lines whose orientation and breadth are the class, from a fixed seed; needs no "
                "download"),
    Dataset(name="gaussian_mi", impl="clsweep.train.mutual_information:draw_pairs", kind="pairs",
            owns=("mutual_information",), num_train=0, num_test=0, image_size=0, channels=0,
            num_classes=0,
            doc="correlated Gaussian vectors of known mutual information, drawn afresh at every "
                "step (EqCo C)"),
    Dataset(name="own", impl="", kind="own", num_train=0, num_test=0, image_size=0, channels=0,
            num_classes=0, doc="what a trainer of your own reads by itself"),
)  # fmt: skip
