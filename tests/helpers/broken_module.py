"""A module that fails while it is imported: a user's may."""

X = 1 // 0
