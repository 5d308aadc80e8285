"""Chat templates for local models that call functions in another form than their own one says.

A chat template is a Jinja program that makes one prompt of the messages and the functions.
"""

from typing import Final

# For small models that write ChatML. They do not keep to the tags that most templates ask for, but
# they write a JSON object when they are shown one. They also lose sight of the question once they
# have a result, so the last result comes with the question again, unless that is long.
BARE_JSON_CALLS: Final = r"""
{%- set has_system = messages[0].role == 'system' -%}
{%- set now = namespace(question='') -%}

{{- '<|im_start|>system\n' -}}
{{- messages[0].content if has_system else 'You are a helpful assistant.' -}}
{%- if tools -%}
  {{- '\n\nYou can call these functions, described by JSON schemas:\n' -}}
  {%- for tool in tools -%}
    {{- '\n' + (tool.function | tojson) -}}
  {%- endfor -%}
  {{- '\n\nTo call a function, write one JSON object and nothing else: ' -}}
  {{- 'no explanation, no code block, no tags.\n' -}}
  {{- '{"name": "the name of the function", ' -}}
  {{- '"arguments": {"the name of an argument": "its value"}}\n' -}}
  {{- 'The next message has its result. ' -}}
  {{- 'Call functions one after the other until you know the answer.' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}

{%- for message in messages -%}
  {%- if message.role == 'tool' -%}
    {{- '<|im_start|>user\nResult: ' + message.content -}}
    {%- if loop.last and now.question | length < 1000 -%}
      {{- '\nUse it to answer: ' + now.question -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
  {%- elif not (loop.first and has_system) -%}
    {%- if message.role == 'user' -%}
      {%- set now.question = message.content -%}
    {%- endif -%}
    {{- '<|im_start|>' + message.role + '\n' + (message.content or '') -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '' if loop.first and not message.content else '\n' -}}
      {{- '{"name": ' + (call.function.name | tojson) + ', "arguments": ' -}}
      {%- if call.function.arguments is string -%}
        {{- call.function.arguments -}}
      {%- else -%}
        {{- call.function.arguments | tojson -}}
      {%- endif -%}
      {{- '}' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}

{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"""
