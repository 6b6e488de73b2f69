"""hearth serve from outside: OpenAI's interface, its members, its streams and its errors."""

import unittest

from support import TINY, ServeTest


class Models(ServeTest):
    model, options = TINY, ("--alias", "other")

    def test_models_and_their_other_names(self):
        status, fields, listed = self.server.get("/v1/models")
        self.assertEqual((status, fields["content-type"], listed["object"]), (200, "application/json", "list"))
        self.assertEqual([model["id"] for model in listed["data"]], ["tiny", "other"])
        for model in listed["data"]:
            self.assertEqual(set(model), {"id", "object", "created", "owned_by"})
            self.assertEqual((model["object"], model["owned_by"]), ("model", "hearth"))
            self.assertEqual(self.server.get(f"/v1/models/{model['id']}")[2], model)
        self.refused(404, "/v1/models/absent", None, "model", '"absent"', "model_not_found", "GET")


if __name__ == "__main__":
    unittest.main()
