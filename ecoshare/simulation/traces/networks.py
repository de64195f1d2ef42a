"""Sizes of published networks: parameters and largest tensors.

Tiresias (Gu et al., NSDI 2019) asks for GPUs of few machines only if one tensor makes up much of a model, since such a
tensor keeps one network card busy. The largest tensors follow from the layers that the papers print. The totals are
those of the authors, or of torchvision and timm, for ImageNet's 1,000 classes:

* VGG: Simonyan and Zisserman, ICLR 2015, table 1 (A, D, E): fc6 takes 512 x 7 x 7 inputs to 4,096.
* AlexNet: Krizhevsky, arXiv:1404.5997 (one column): fc6 takes 256 x 6 x 6 inputs to 4,096.
* ResNet: He et al., CVPR 2016, table 1: conv5_x has 3 x 3 filters, 512 to 512.
* GoogLeNet: Szegedy et al., CVPR 2015, table 1; Inception v3: Szegedy et al., CVPR 2016, table 1; Inception v4: Szegedy
  et al., AAAI 2017, figure 9: the classifier, 1,024, 2,048 and 1,536 inputs to 1,000; without auxiliary classifiers.
* OverFeat: Sermanet et al., ICLR 2014, table 1 (fast): fc6 takes 1,024 x 6 x 6 inputs to 3,072.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes of a network, in numbers of parameters."""

    parameters: int
    largest_tensor: int

    @property
    def skew(self) -> float:
        """Share of the largest tensor in all parameters, 0 to 1."""
        return self.largest_tensor / self.parameters


_CONV5 = 512 * 512 * 3 * 3

_NETWORKS = {
    "vgg11": Network(132_863_336, 512 * 7 * 7 * 4096),
    "vgg16": Network(138_357_544, 512 * 7 * 7 * 4096),
    "vgg19": Network(143_667_240, 512 * 7 * 7 * 4096),
    "alexnet": Network(61_100_840, 256 * 6 * 6 * 4096),
    "resnet50": Network(25_557_032, _CONV5),
    "resnet101": Network(44_549_160, _CONV5),
    "resnet152": Network(60_192_808, _CONV5),
    "googlenet": Network(6_624_904, 1024 * 1000),
    "inception3": Network(23_834_568, 2048 * 1000),
    "inception4": Network(42_679_816, 1536 * 1000),
    "overfeat": Network(145_704_424, 1024 * 6 * 6 * 3072),
}


def network(name: str) -> Network | None:
    """Network of this name in any common spelling (`VGG-16`, `inception_v3`); None if unknown."""
    bare = name.lower().replace("-", "").replace("_", "")
    return _NETWORKS.get(bare.replace("inceptionv", "inception"))


def skew(name: str) -> float | None:
    """Share of the largest tensor in a network's parameters; None if the network is unknown."""
    known = network(name)
    return None if known is None else known.skew
