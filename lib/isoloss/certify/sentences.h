// Says in words what a certificate holds.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/certify/certificate.h"

namespace isoloss::certify {

/// A list shows at most this many entries.
inline constexpr size_t kMostShown = 8;

/// Returns the first texts, and how many follow.
std::string Listed(const std::vector<std::string>& texts,
                   size_t most = kMostShown);
std::string StepsText(const std::vector<int64_t>& steps);
/// Begins a sentence that may begin with the name of a run.
std::string Sentence(const Certificate& certificate, std::string text);
/// Returns "step 7, loss_nats: 2.5 and 2.6".
std::string WhereText(const LogDifference& where);
std::string HeadlineOf(const Certificate& certificate);
/// Says what was compared, a phrase for each kind.
std::vector<std::string> ComparedTexts(const Compared& of);
/// Says for what the certificate holds; "": no log tells.
std::string HoldsFor(const Certificate& certificate);

}  // namespace isoloss::certify
