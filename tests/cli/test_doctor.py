"""What `hearth doctor` finds."""

import os
import unittest

from support import CommandTest


class Doctor(CommandTest):
    def doctor(self, *words, **more):
        return self.succeeds("doctor", "--json", *words, **more).json

    def test_json(self):
        value = self.doctor("--threads", "1")
        self.assertRegex(value["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(value["cores"], len(os.sched_getaffinity(0)))
        self.assertEqual(value["threads"], 1)
        self.assertGreater(value["memory_bytes"], value["memory_available_bytes"])
        for key in ["read_bytes_per_second", "int8_ops_per_second", "f32_ops_per_second"]:
            self.assertGreater(value[key], 1e7, key)
        sets = {each["name"]: each for each in value["instruction_sets"]}
        self.assertTrue(sets["reference"]["built_in"] and sets["reference"]["machine_has"])
        usable = [each["name"] for each in value["instruction_sets"] if each["built_in"] and each["machine_has"]]
        self.assertEqual(value["instruction_set"], usable[-1])

    def test_instruction_set_asked_for(self):
        value = self.doctor("--threads", "1", "--cpu", "reference")
        self.assertEqual(value["instruction_set"], "reference")
        if any(s["built_in"] and s["machine_has"] for s in value["instruction_sets"] if s["name"] != "reference"):
            self.assertTrue(any("--cpu" in sentence for sentence in value["advice"]))
        self.fails(1, "doctor", "--cpu", "abacus", says=["`abacus`", "reference"])

    def test_default_model(self):
        env = {"XDG_CACHE_HOME": str(self.folder)}
        value = self.doctor("--threads", "1", env=env)
        self.assertIsNone(value["default_model"])
        self.assertTrue(any("scripts/" in sentence for sentence in value["advice"]))
        models = self.folder / "hearth" / "models"
        models.mkdir(parents=True)
        (name,) = [word for sentence in value["advice"] for word in sentence.split() if word.startswith(str(models))]
        open(name.rstrip(","), "w").close()
        value = self.doctor("--threads", "1", env=env)
        self.assertEqual(value["default_model"], name.rstrip(","))

    def test_more_threads_than_cores(self):
        threads = str(len(os.sched_getaffinity(0)) + 1)
        self.assertTrue(any("--threads" in sentence for sentence in self.doctor("--threads", threads)["advice"]))

    def test_text(self):
        result = self.succeeds("doctor", "--threads", "1", "--quiet")
        text = result.text
        self.assertEqual(result.err, "")
        for word in ["hearth ", "cores", "memory", "instruction sets", "used: the best", "GB/s", "int8 peak", "what to do"]:
            self.assertIn(word, text)

    def test_no_model_is_taken(self):
        self.fails(2, "doctor", "model.gguf", says='"model.gguf"')


if __name__ == "__main__":
    unittest.main()
