"""What is known about the public data sets: their splits, checksums and official addresses.

Paths are relative to a data folder (see `bayeslim.data.cache`) and written with forward slashes.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Split = Literal["train", "test"]

MNIST_CLASSES = tuple("0123456789")
FASHION_MNIST_CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle-boot"),
)
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR100_CLASSES = (
    *("apple", "aquarium_fish", "baby", "bear", "beaver"),
    *("bed", "bee", "beetle", "bicycle", "bottle"),
    *("bowl", "boy", "bridge", "bus", "butterfly"),
    *("camel", "can", "castle", "caterpillar", "cattle"),
    *("chair", "chimpanzee", "clock", "cloud", "cockroach"),
    *("couch", "crab", "crocodile", "cup", "dinosaur"),
    *("dolphin", "elephant", "flatfish", "forest", "fox"),
    *("girl", "hamster", "house", "kangaroo", "keyboard"),
    *("lamp", "lawn_mower", "leopard", "lion", "lizard"),
    *("lobster", "man", "maple_tree", "motorcycle", "mountain"),
    *("mouse", "mushroom", "oak_tree", "orange", "orchid"),
    *("otter", "palm_tree", "pear", "pickup_truck", "pine_tree"),
    *("plain", "plate", "poppy", "porcupine", "possum"),
    *("rabbit", "raccoon", "ray", "road", "rocket"),
    *("rose", "sea", "seal", "shark", "shrew"),
    *("skunk", "skyscraper", "snail", "snake", "spider"),
    *("squirrel", "streetcar", "sunflower", "sweet_pepper", "table"),
    *("tank", "telephone", "television", "tiger", "tractor"),
    *("train", "trout", "tulip", "turtle", "wardrobe"),
    *("whale", "willow_tree", "wolf", "woman", "worm"),
)

# SHA-256 of the files as published. imdb.jsonl.xz and the *.npz files are lossless repackagings; the *.bin
# files are the members of the official CIFAR archives.
KNOWN_SHA256: dict[str, str] = {
    "mnist/train-images-idx3-ubyte.gz": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "mnist/train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "mnist/t10k-images-idx3-ubyte.gz": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    "mnist/t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    "fashion-mnist/train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    "fashion-mnist/train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "fashion-mnist/t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    "cifar-10-batches-bin/data_batch_1.bin": ("cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "cifar-10-batches-bin/data_batch_2.bin": ("a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    "cifar-10-batches-bin/data_batch_3.bin": ("bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    "cifar-10-batches-bin/data_batch_4.bin": ("014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    "cifar-10-batches-bin/data_batch_5.bin": ("755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    "cifar-10-batches-bin/test_batch.bin": ("8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    "cifar-100-binary/train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "cifar-100-binary/test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
    "imdb/imdb.jsonl.xz": "d8c49ccfcc455cc63f509bbbb21fce84bdd3deaa2017c4ba9b9789ef190c11b7",
    "uci/bostonHousing.npz": "cde2873ac71fece01cd4d27619f94ea02595f25baeeb36c4b5d9c5f1a16af2ec",
    "uci/concrete.npz": "4c2774ddfd60b204adc902857ac3fef4b6e07c32d0b6e0470574286e2f6993ff",
    "uci/energy.npz": "ed9cb13221e23eda41e25fc4d73bb9fcce85b90fe24e38c3f2a92b8f2c16a4df",
    "uci/kin8nm.npz": "6ffad946ceeb8a73ee7154aca8ee26067f46627dd0fc2fce986a8ce406fbcdd4",
    "uci/power-plant.npz": "7c4eedbfa31c2e3518f92691d9a41fab6e4b09f5d3bcef97bb31cb32ab182a74",
    "uci/protein-tertiary-structure.npz": ("9ed608131063d22dd0dc5d9357af5a3ff9253345e85fc02f9f6baa1d7481975f"),
    "uci/wine-quality-red.npz": "c43e61b3bca93920a8eef7d7cd5a9b3256f045f4c074f6ca95ac3b6d13335129",
}

_SAME_FOLDER = {
    "MNIST/raw/": "mnist/",
    "FashionMNIST/raw/": "fashion-mnist/",
    "cifar10/cifar-10-batches-bin/": "cifar-10-batches-bin/",
    "cifar100/cifar-100-binary/": "cifar-100-binary/",
}


@dataclass(frozen=True)
class Source:
    """Where a file or archive is published.

    Attributes:
        url: http or https address.
        sha256: checksum of the file behind it.
        save_as: path of the file relative to the data folder.
        members: empty for a plain file; for a tar archive, the name prefixes to unpack from it.
    """

    url: str
    sha256: str
    save_as: str
    members: tuple[str, ...] = ()


_IDX_ADDRESS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}

CIFAR10_SOURCE = Source(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    save_as="cifar-10-binary.tar.gz",
    members=("cifar-10-batches-bin/",),
)

CIFAR100_SOURCE = Source(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    save_as="cifar-100-binary.tar.gz",
    members=("cifar-100-binary/",),
)

IMDB_SOURCE = Source(
    url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    save_as="aclImdb_v1.tar.gz",
    members=tuple(f"aclImdb/{split}/{side}/" for split in ("train", "test") for side in ("neg", "pos")),
)


def idx_source(name: str, filename: str) -> Source:
    """Return where the gzipped idx file `filename` of `mnist` or `fashion-mnist` is published."""
    path = f"{name}/{filename}"
    return Source(url=_IDX_ADDRESS[name] + filename, sha256=KNOWN_SHA256[path], save_as=path)


def known_sha256(relative_path: str) -> str | None:
    """Return the published checksum of a file in any accepted layout, None where there is none.

    Args:
        relative_path: path below the data folder, e.g. ``MNIST/raw/t10k-labels-idx1-ubyte.gz``.

    Returns:
        64 hexadecimal digits or None.

    Example:
        >>> known_sha256("uci/concrete.npz")[:8]
        '4c2774dd'
    """
    for folder, canonical in _SAME_FOLDER.items():
        if relative_path.startswith(folder):
            relative_path = canonical + relative_path.removeprefix(folder)
    return KNOWN_SHA256.get(relative_path)


def check_split(split: str) -> None:
    """Raise a ValueError unless `split` is ``"train"`` or ``"test"``."""
    if split not in get_args(Split):
        raise ValueError(f"`split` must be 'train' or 'test', got {split!r}: pass one of the two")
