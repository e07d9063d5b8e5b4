"""The stand-in for W&B's server, where other tests would not show that it is wrong."""

import pytest
import wandb
from wandb.sdk.lib.service.service_connection import WandbApiFailedError

from support.wandb_server.server import online, serve
from support.wandb_server.store import KEY


def test_what_it_does_not_know_is_an_error_and_is_kept(tmp_path):
    """Else a new version of the client that calls something more would pass unseen."""
    with serve(tmp_path) as own, online(own):
        api = wandb.Api()._service_api
        with pytest.raises(WandbApiFailedError, match="does not know New: news"):
            api.execute_graphql("query New { viewer { id } news { text } }")
        assert api.execute_graphql("query Old { viewer { id shoe { size } } }")["viewer"]["shoe"] is None
        assert own.unknown == ["New: news"]
        assert not any(KEY in str(seen) for seen in own.requests)
