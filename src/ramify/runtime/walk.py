"""Go through a tree of nodes, at any depth."""

from ramify.runtime.node import CodeNode


def subtree(node: CodeNode) -> list[CodeNode]:
    """Return *node* and all below it, each before those that it called."""
    found: list[CodeNode] = []
    stack = [node]
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(reversed(node.children))
    return found


def root_of(node: CodeNode) -> CodeNode:
    """Return the top-level call of the tree that *node* is in."""
    while node.parent is not None:
        node = node.parent
    return node
