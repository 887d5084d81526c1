"""Images for deep networks: as bytes on the device, varied there (`varied`), and those of ImageNet (`imagenet`)."""
