"""QCCF and the policies it is compared with, one file each. Paper: Sections V and VI."""
