"""NumPyro's stack of handlers belongs to the process, and forecasts run fits in threads."""

import threading

import jax.numpy as jnp
from single_rows import row_log_likelihood

import tacit
from tacit.models.front_ends import adapt_model


def test_threads_run_a_model_one_after_the_other():
    schema = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Binary()})
    model = adapt_model(tacit.glm("y ~ x", schema=schema), schema)
    row = {"x": jnp.float32(0.5), "y": jnp.int32(1)}
    expected = float(row_log_likelihood(model, jnp.ones(2), row))
    found, ready = [], threading.Barrier(4)

    def work():
        ready.wait()
        for _ in range(5):
            try:
                found.append(float(row_log_likelihood(model, jnp.ones(2), row)))
            except Exception as error:  # noqa: BLE001
                found.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20
