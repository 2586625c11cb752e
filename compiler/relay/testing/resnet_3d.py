"""3-D ResNet for video: `resnet` over depth, height and width.

Hara, Kataoka and Satoh, "Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?"
(2018).
"""

from . import resnet as of_images
from .init import with_defaults, workload_of

residual_unit = with_defaults(of_images.residual_unit, data_layout="NCDHW", kernel_layout="OIDHW")
resnet = with_defaults(of_images.resnet, layout="NCDHW")
get_net = with_defaults(of_images.get_net, image_shape=(3, 16, 112, 112), layout="NCDHW")
get_workload = workload_of(get_net, batch_size=1, num_classes=1000, num_layers=18)
