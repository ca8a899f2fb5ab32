"""The manifest for Kubernetes in the docs: what its parts name is there."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs/guides/large_tables.md").read_text("utf-8")


def test_a_job_of_kubernetes_names_what_the_manifest_has():
    (text,) = re.findall("```yaml\n(.*?)```", PAGE, re.DOTALL)
    parts = {each["kind"]: each for each in yaml.safe_load_all(text)}
    names = {kind: each["metadata"]["name"] for kind, each in parts.items()}
    job = parts["Job"]["spec"]
    pod = job["template"]["spec"]
    assert pod["serviceAccountName"] == names["ServiceAccount"]
    binding = parts["RoleBinding"]
    assert binding["roleRef"]["name"] == names["Role"]
    assert binding["subjects"][0]["name"] == names["ServiceAccount"]
    readable = {name for rule in parts["Role"]["rules"] for name in rule["resources"]}
    assert readable == {"pods", "jobs"}
    assert pod["subdomain"] == names["Service"]
    assert parts["Service"]["spec"] == {"clusterIP": "None", "selector": {"job-name": names["Job"]}}
    volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]}
    assert set(volumes.values()) == {names["PersistentVolumeClaim"]}
    (container,) = pod["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
    assert job["completionMode"] == "Indexed"
    (command,) = container["args"]
    assert f"--workers {job['completions']} " in command
    assert job["completions"] == job["parallelism"]


def test_the_manifest_is_of_kubernetes():
    (text,) = re.findall("```yaml\n(.*?)```", PAGE, re.DOTALL)
    for part in yaml.safe_load_all(text):
        kubernetes_validate.validate(part, "1.30", strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(part | {"specification": {}}, "1.30", strict=True)
