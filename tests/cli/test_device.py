"""Which device the commands choose, with a CUDA driver that runs on the host (tests/cuda/driver.cc)."""

import os
import unittest

from support import TINY, CommandTest

DRIVER = os.environ.get("CUDA_ON_HOST")
ON_GPU = {"LD_LIBRARY_PATH": DRIVER or "", "HEARTH_DEVICE": "", "ON_HOST_MEMORY": "4096"}
NAME = "a GPU on the host"
RUN = ["run", TINY, "a", "--raw", "-n", "4", "--temperature", "0"]


@unittest.skipUnless(DRIVER, "this build has no CUDA device")
class DefaultDevice(CommandTest):
    def err(self, *words, **env):
        return self.succeeds(*words, env={**ON_GPU, **env}).err

    def test_a_gpu_with_room_is_used_and_told_of(self):
        self.assertIn(NAME, self.err(*RUN))
        self.assertIn(NAME, self.err(*RUN, "--device", "cuda", HEARTH_DEVICE="cpu"))
        self.assertIn(NAME, self.err(*RUN, HEARTH_DEVICE="cuda:0"))

    def test_both_write_the_same(self):
        texts = {self.succeeds(*RUN, "--device", name, env=ON_GPU).text for name in ["cpu", "cuda"]}
        self.assertEqual(len(texts), 1)

    def test_the_cpu_is_used_otherwise(self):
        self.assertNotIn(NAME, self.err(*RUN, "--device", "cpu"))
        self.assertNotIn(NAME, self.err(*RUN, HEARTH_DEVICE="cpu"))
        self.assertNotIn(NAME, self.err(*RUN, "--cpu", "reference"))
        self.assertNotIn(NAME, self.err(*RUN, "--packed-cache", XDG_CACHE_HOME=str(self.folder)))
        self.assertNotIn(NAME, self.err(*RUN, ON_HOST_MEMORY="1024"))  # no room beside the margin
        self.assertNotIn(NAME, self.err(*RUN, LD_LIBRARY_PATH=""))

    def test_one_that_is_asked_for_has_to_be_there(self):
        self.fails(1, *RUN, "--device", "cuda:1", env=ON_GPU, says="no GPU 1")
        self.fails(1, *RUN, env={**ON_GPU, "HEARTH_DEVICE": "abacus"}, says="abacus")
        self.fails(1, *RUN, "--device", "cuda", env={**ON_GPU, "LD_LIBRARY_PATH": ""}, says="driver")

    def test_bench(self):
        words = ["bench", TINY, "--json", "-p", "8", "-n", "3", "-r", "1", "--depth", "20", "--parallel", "3"]
        value = self.succeeds(*words, env=ON_GPU).json
        self.assertEqual((value["device"], value["instruction_set"], value["depth"]), ("cuda", NAME, 20))
        self.assertEqual(value["parallel"], 3)
        self.assertGreater(value["kv_bytes_per_token"], 0)
        for key in ["prefill_of_peak", "decode_of_read_bandwidth", "parallel_of_read_bandwidth", "read_bytes_per_second"]:
            self.assertGreater(value[key], 0, key)
        self.assertEqual(self.succeeds(*words, "--device", "cpu", env=ON_GPU).json["device"], "cpu")

    def test_divergence_from_the_cpu(self):
        text = self.write("text", "abc " * 40)
        words = ["eval", TINY, "--text", text, "--ctx", "64", "--json", "--kl-vs-reference", "--vs-device", "cpu"]
        value = self.succeeds(*words, env=ON_GPU).json
        self.assertLess(value["kl_mean"], 1e-3)
        self.fails(2, "eval", TINY, "--text", text, "--vs-device", "cpu", says="--vs-device needs")

    def test_doctor(self):
        env = {**ON_GPU, "ON_HOST_MEMORY": "8"}
        (gpu,) = self.succeeds("doctor", "--threads", "1", "--json", env=env).json["gpus"]
        self.assertEqual((gpu["device"], gpu["name"], gpu["trouble"]), ("cuda:0", NAME, None))
        self.assertEqual((gpu["compute_capability"], gpu["cuda"]), ("8.0", "12.4"))
        self.assertLessEqual(gpu["memory_free_bytes"], gpu["memory_bytes"])
        for key in ["read_bytes_per_second", "f16_ops_per_second", "f32_ops_per_second"]:
            self.assertGreater(gpu[key], 1e5, key)
        text = self.succeeds("doctor", "--threads", "1", "--quiet", env=env).text
        for word in ["GPU cuda:0", NAME, "capability 8.0", "f16 peak", "CUDA 12.4"]:
            self.assertIn(word, text)


class NoDevice(CommandTest):
    def test_doctor_says_what_is_missing(self):
        value = self.succeeds("doctor", "--threads", "1", "--json").json
        if value["gpus"]:
            self.skipTest("there is a GPU")
        self.assertRegex(value["no_gpu"], "libhearth_cuda.so|libcuda.so|GPU")


if __name__ == "__main__":
    unittest.main()
