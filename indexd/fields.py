"""The types of request parameters: what each allows, and how an error says so."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

MAX_INDEX = 2**31 - 1

Versions = Annotated[tuple[int, int], Meta(description="[lowest, highest] as whole numbers")]
Text = Annotated[str, Meta(description="a string")]
OptionalText = Annotated[str | None, Meta(description="a string")]
Flag = Annotated[bool, Meta(description="true or false")]
Limit = Annotated[int, Meta(ge=1, le=200, description="a whole number from 1 to 200")]
Offset = Annotated[int, Meta(ge=0, le=1_000_000, description="a whole number from 0 to 1000000")]
Nearby = Annotated[int, Meta(ge=0, le=50, description="a whole number from 0 to 50")]
Index = Annotated[int, Meta(ge=0, le=MAX_INDEX, description="a whole number from 0 on")]
OptionalIndex = Annotated[
    Annotated[int, Meta(ge=0, le=MAX_INDEX)] | None, Meta(description="a whole number from 0 on")
]
Place = Annotated[
    Literal["start", "end"] | int | None, Meta(description='"start", "end" or a point in time')
]
Whole = Annotated[int, Meta(description="a whole number")]
OptionalWhole = Annotated[int | None, Meta(description="a whole number")]
Results = Annotated[int, Meta(ge=1, le=100, description="a whole number from 1 to 100")]
OptionalResults = Annotated[Results | None, Meta(description="a whole number from 1 to 100")]
Tokens = Annotated[int, Meta(ge=0, le=10**12, description="a whole number of tokens")]
OptionalTokens = Annotated[Tokens | None, Meta(description="a whole number of tokens")]
OptionalDays = Annotated[
    Annotated[float, Meta(ge=0, le=36_500)] | None,
    Meta(description="a number of days from 0 to 36500"),
]
Scope = Annotated[Literal["global", "project"], Meta(description='"global" or "project"')]
Order = Annotated[Literal["relevance", "recent"], Meta(description='"relevance" or "recent"')]
Subagents = Annotated[
    Literal["include", "exclude", "only"], Meta(description='"include", "exclude" or "only"')
]
Source = Annotated[Literal["global", "archive"] | None, Meta(description='"global" or "archive"')]
Role = Annotated[
    Literal["user", "assistant", "tool", "system"] | None,
    Meta(description='"user", "assistant", "tool" or "system"'),
]
Group = Annotated[Literal["session"] | None, Meta(description='"session"')]
CopiesShown = Annotated[Literal["collapse", "all"] | None, Meta(description='"collapse" or "all"')]
Detail = Annotated[Literal["signature", "full"], Meta(description='"signature" or "full"')]
Event = Annotated[
    Literal["connected", "tools_changed", "disconnected"],
    Meta(description='"connected", "tools_changed" or "disconnected"'),
]
OptionalTools = Annotated[list[Any] | None, Meta(description="a list of MCP tools")]
Time = Annotated[str | int | float | None, Meta(description="a time")]
