// What a file of tests/fuzz defines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Takes any bytes. A fault is an abort; the result is 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// Inputs that reach far, to start from; optional.
std::vector<std::string> FuzzSeeds();
