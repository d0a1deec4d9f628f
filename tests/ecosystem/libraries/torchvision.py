"""Classification, segmentation and transforms; operators of its compiled library are not called."""

from __future__ import annotations

import torch
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.vision_transformer import VisionTransformer
from torchvision.ops import FeaturePyramidNetwork, sigmoid_focal_loss
from torchvision.transforms import v2

from ecosystem.programs import Backend, Step, inference, program, training


@program
def resnet_training(backend: Backend) -> Step:
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)
    call = backend.compile(model)
    return training(
        lambda x, y: torch.nn.functional.cross_entropy(call(x), y),
        model,
        [(torch.randn(4, 3, 32, 32), torch.randint(5, (4,)))],
    )


@program
def vision_transformer_inference(backend: Backend) -> Step:
    model = backend.compile(VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=4).eval())
    return inference(model, [(torch.randn(2, 3, 32, 32),), (torch.randn(2, 3, 32, 32),)])


@program
def feature_pyramid_training(backend: Backend) -> Step:
    model = FeaturePyramidNetwork([4, 8, 16], 8)
    call = backend.compile(model)
    sizes = ((4, 16), (8, 8), (16, 4))

    def loss(*maps: torch.Tensor) -> torch.Tensor:
        result = call({str(number): x for number, x in enumerate(maps)})
        return torch.stack([x.square().mean() for x in result.values()]).sum()

    return training(loss, model, [tuple(torch.randn(2, c, s, s) for c, s in sizes) for _ in range(2)])


class Backbone(torch.nn.Sequential):
    """A backbone of one map."""

    out_channels = 8


@program
def detector_inference(backend: Backend) -> Step:
    backbone = Backbone(torch.nn.Conv2d(3, 8, 3, stride=4, padding=1), torch.nn.ReLU())
    anchors = AnchorGenerator(((8, 16),), ((0.5, 1.0),))
    model = RetinaNet(
        backbone, 3, min_size=32, max_size=32, anchor_generator=anchors, score_thresh=0.0
    ).eval()
    call = backend.compile(model)
    return inference(lambda x: [list(one.values()) for one in call([x])], [(torch.rand(3, 32, 32),)])


@program
def transforms(backend: Backend) -> Step:
    transform = v2.Compose(
        [
            v2.Resize((20, 24), antialias=True),
            v2.CenterCrop(16),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    images = [torch.randint(256, (2, 3, 30, 40), dtype=torch.uint8) for _ in range(2)]
    return inference(backend.compile(transform), [(image,) for image in images])


@program
def focal_loss(backend: Backend) -> Step:
    head = torch.nn.Linear(6, 3)
    call = backend.compile(lambda x, y: sigmoid_focal_loss(head(x), y, reduction="mean"))
    return training(call, head, [(torch.randn(8, 6), torch.randint(2, (8, 3)).float()) for _ in range(2)])
