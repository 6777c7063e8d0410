"""The reference's answers as JSON schemas: its OpenAPI document, and what that leaves open.

The document does not describe `/state` and `/events`; their schemas here are written from the
facts about the reference, closed like its own models, and never from our models.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

Schema = dict[str, Any]

REFERENCE: Schema = json.loads(
    (Path(__file__).parent / "data" / "openapi.json").read_text(encoding="utf-8")
)
TAGGED = {  # the document leaves out the tag that the running reference writes
    "CfgShardMetadata",
    "MlxJacclInstance",
    "MlxRingInstance",
    "PipelineShardMetadata",
    "TensorShardMetadata",
}


def bare_name(schema_name: str) -> str:
    return schema_name.removesuffix("-Input").removesuffix("-Output")


def with_tags(part: Any) -> Any:
    """A part of the document with the tags that are really written."""
    if isinstance(part, list):
        return [with_tags(item) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part and (name := bare_name(part["$ref"].rsplit("/", 1)[1])) in TAGGED:
        return closed(**{name: part})
    return {key: with_tags(value) for key, value in part.items()}


def closed(**properties: Schema) -> Schema:
    """An object with exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def either(*parts: Schema) -> Schema:
    return {"anyOf": list(parts)}


def nullable(part: Schema) -> Schema:
    return either(part, {"type": "null"})


def list_of(part: Schema) -> Schema:
    return {"type": "array", "items": part}


def map_to(part: Schema) -> Schema:
    return {"type": "object", "additionalProperties": part}


def component(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def variants(common: Schema | None = None, **bodies: Schema) -> Schema:
    """One of several tagged objects; all of them have the common keys, too."""
    return either(*(closed(**{tag: closed(**(common or {}), **b)}) for tag, b in bodies.items()))


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ZULU: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}
ANY: Schema = {}
MEMORY = component("Memory")
INSTANCE = either(
    *(with_tags(component(f"Mlx{kind}Instance-Output")) for kind in ("Ring", "Jaccl"))
)
SHARD = either(
    *(with_tags(component(f"{k}ShardMetadata-Output")) for k in ("Pipeline", "Tensor", "Cfg"))
)

RUNNER_STATUS = variants(
    RunnerIdle={}, RunnerConnecting={}, RunnerConnected={}, RunnerLoaded={}, RunnerWarmingUp={},
    RunnerReady={}, RunnerRunning={}, RunnerShuttingDown={}, RunnerShutdown={},
    RunnerLoading={"layersLoaded": WHOLE, "totalLayers": WHOLE},
    RunnerFailed={"errorMessage": nullable(TEXT)},
)  # fmt: skip

_FILE_PROGRESS = {
    "total": MEMORY, "downloaded": MEMORY, "downloadedThisSession": MEMORY,
    "completedFiles": WHOLE, "totalFiles": WHOLE, "speed": NUMBER, "etaMs": WHOLE,
}  # fmt: skip
DOWNLOAD = variants(
    {"nodeId": TEXT, "shardMetadata": SHARD, "modelDirectory": TEXT},
    DownloadPending={"downloaded": MEMORY, "total": MEMORY},
    DownloadOngoing={
        "downloadProgress": closed(**_FILE_PROGRESS, files=map_to({"type": "object"}))
    },
    DownloadCompleted={"total": MEMORY, "readOnly": FLAG},
    DownloadFailed={"errorMessage": TEXT},
)

# snake_case inside the camelCase task
TEXT_PARAMS = closed(
    model=TEXT, input=list_of(closed(role=TEXT, content=TEXT)), instructions=nullable(TEXT),
    max_output_tokens=nullable(WHOLE), temperature=nullable(NUMBER), top_p=nullable(NUMBER),
    stream=FLAG, tools=nullable(list_of({"type": "object"})), bench=FLAG, top_k=nullable(WHOLE),
    stop=nullable(either(TEXT, list_of(TEXT))), seed=nullable(WHOLE),
    chat_template_messages=nullable(list_of({"type": "object"})), reasoning_effort=nullable(TEXT),
    enable_thinking=nullable(FLAG), logprobs=FLAG, top_logprobs=nullable(WHOLE),
    min_p=nullable(NUMBER), repetition_penalty=nullable(NUMBER),
    repetition_context_size=nullable(WHOLE), images=list_of(TEXT), image_hashes=map_to(TEXT),
    total_input_chunks=WHOLE, image_count=WHOLE,
)  # fmt: skip
TASK_STATUS: Schema = {
    "enum": ["Pending", "Running", "Complete", "TimedOut", "Failed", "Cancelled"]
}
_REQUEST = {
    "commandId": TEXT, "ownerNode": nullable(TEXT), "traceEnabled": FLAG,
    "errorType": nullable(TEXT), "errorMessage": nullable(TEXT),
}  # fmt: skip
_BOUND = closed(instance=INSTANCE, boundRunnerId=TEXT, boundNodeId=TEXT)
TASK = variants(
    {"taskId": TEXT, "taskStatus": TASK_STATUS, "instanceId": TEXT},
    CreateRunner={"boundInstance": _BOUND},
    DownloadModel={"shardMetadata": SHARD},
    ConnectToGroup={},
    LoadModel={},
    StartWarmup={},
    TextGeneration={**_REQUEST, "taskParams": TEXT_PARAMS},
    CancelTask={"cancelledTaskId": TEXT, "runnerId": TEXT},
    Shutdown={"runnerId": TEXT},
)

EDGE = either(
    closed(sinkMultiaddr=closed(address=TEXT, address_type=TEXT, ip_address=TEXT, port=WHOLE)),
    closed(sourceRdmaIface=TEXT, sinkRdmaIface=TEXT),
)
_THUNDERBOLT = list_of(closed(rdmaInterface=TEXT, domainUuid=TEXT, linkSpeed=TEXT))
_BRIDGE = closed(enabled=FLAG, exists=FLAG, serviceName=nullable(TEXT))
_HEALTH = closed(
    level={"enum": ["ok", "warn", "error"]},
    reasons=list_of(
        closed(
            code={"enum": ["download_failed", "disk_full", "disk_low", "unreachable"]},
            message=TEXT,
            remediation=TEXT,
        )
    ),
)

STATE = closed(
    instances=map_to(INSTANCE),
    runners=map_to(RUNNER_STATUS),
    downloads=map_to(list_of(DOWNLOAD)),
    tasks=map_to(TASK),
    lastSeen=map_to(ZULU),
    topology=closed(nodes=list_of(TEXT), connections=map_to(map_to(list_of(EDGE)))),
    tracingEnabled=FLAG,
    lastEventAppliedIdx=WHOLE,
    nodeNetwork=map_to(component("NodeNetworkInfo")),
    nodeThunderbolt=map_to(closed(interfaces=_THUNDERBOLT)),
    nodeThunderboltBridge=map_to(_BRIDGE),
    thunderboltBridgeCycles=list_of(list_of(TEXT)),
    nodeMemory=map_to(component("MemoryUsage")),
    nodeSystem=map_to(component("SystemPerformanceProfile")),
    nodeIdentities=map_to(component("NodeIdentity")),
    nodeDisk=map_to(component("DiskUsage")),
    nodeRdmaCtl=map_to(closed(enabled=FLAG, interfacesPresent=FLAG)),
    nodeHealth=map_to(_HEALTH),
)

_GATHERED = variants(
    NodeNetworkInterfaces={"interfaces": list_of(component("NetworkInterfaceInfo"))},
    MacThunderboltIdentifiers={"interfaces": _THUNDERBOLT},
    MacThunderboltConnections={"connections": list_of(closed(sourceUuid=TEXT, sinkUuid=TEXT))},
    ThunderboltBridgeInfo={"status": _BRIDGE},
)
_CONNECTION = closed(source=TEXT, sink=TEXT, edge=EDGE)
_TRACES = list_of(component("TraceEventResponse"))
EVENT = variants(
    {"eventId": TEXT},
    TestEvent={},
    TaskCreated={"taskId": TEXT, "task": TASK},
    TaskStatusUpdated={"taskId": TEXT, "taskStatus": TASK_STATUS},
    TaskFailed={"taskId": TEXT, "errorType": TEXT, "errorMessage": TEXT},
    TaskDeleted={"taskId": TEXT},
    TaskAcknowledged={"taskId": TEXT},
    InstanceCreated={"instance": INSTANCE},
    InstanceDeleted={"instanceId": TEXT},
    RunnerStatusUpdated={"runnerId": TEXT, "runnerStatus": RUNNER_STATUS},
    NodeTimedOut={"nodeId": TEXT},
    NodeGatheredInfo={"nodeId": TEXT, "when": ZULU, "info": _GATHERED},
    NodeDownloadProgress={"downloadProgress": DOWNLOAD},
    ChunkGenerated={"commandId": TEXT, "chunk": ANY},
    InputChunkReceived={"commandId": TEXT, "chunk": ANY},
    TopologyEdgeCreated={"conn": _CONNECTION},
    TopologyEdgeDeleted={"conn": _CONNECTION},
    TracesCollected={"taskId": TEXT, "rank": WHOLE, "traces": _TRACES},
    TracesMerged={"taskId": TEXT, "traces": _TRACES},
    TracingStateChanged={"enabled": FLAG},
    CustomModelCardAdded={"modelCard": component("ModelCard-Output")},
    CustomModelCardDeleted={"modelId": TEXT},
)


def _snake(key: str) -> str:
    # Tags are class names and stay as they are.
    return key if key[:1].isupper() else re.sub("([A-Z])", r"_\1", key).lower()


def in_snake_case(part: Any) -> Any:
    """The same schema for what is written without aliases, as `/events` is."""
    if isinstance(part, list):
        return [in_snake_case(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {key: in_snake_case(value) for key, value in part.items()}
    if isinstance(part.get("properties"), dict):
        made["properties"] = {_snake(k): in_snake_case(v) for k, v in part["properties"].items()}
    if isinstance(part.get("required"), list):
        made["required"] = [_snake(key) for key in part["required"]]
    return made


@cache
def _components(snake_case: bool) -> Schema:
    parts: Schema = copy.deepcopy(REFERENCE["components"])
    for schema in parts["schemas"].values():
        properties = schema.get("properties", {})
        schema["properties"] = {key: with_tags(part) for key, part in properties.items()}
    made: Schema = in_snake_case(parts) if snake_case else parts
    return made


def problem(schema: Schema, value: Any, *, snake_case: bool = False) -> str | None:
    """What is wrong with an answer, in one line; None when the reference would take it."""
    rule = in_snake_case(schema) if snake_case else schema
    whole = {**rule, "components": _components(snake_case)}
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(whole).iter_errors(value)
    )
    return None if error is None else f"{error.json_path}: {error.message[:400]}"


def answer_schema(method: str, path: str) -> Schema:
    """What the reference answers with 200; `/state` and `/events` are described above."""
    if path == "/state":
        return STATE
    if path == "/events":
        return list_of(EVENT)
    operation = REFERENCE["paths"][path][method.lower()]
    content = operation["responses"]["200"]["content"]
    schema: Schema = with_tags(content["application/json"]["schema"])
    return schema
