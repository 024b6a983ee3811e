// Waits until a word changes, but never without a limit: the standard library's
// atomic waits have none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace isoloss::transport {

/// Sleeps while `word` is `old`, until a WakeAll or for `longest`. May return
/// early.
void WaitWhile(const std::atomic<uint32_t>& word, uint32_t old,
               std::chrono::nanoseconds longest);

void WakeAll(const std::atomic<uint32_t>& word);

}  // namespace isoloss::transport
