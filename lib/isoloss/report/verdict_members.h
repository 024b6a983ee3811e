// Makes the members of verdict.json. They hold figures that no text shows
// unchanged.
#pragma once

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// The members leave out measures, controls, checks, peers, tensors, precision
/// and warnings, which are also shown to people.
document::Document VerdictMembers(const gate::Judgement& judgement);

document::Document CheckMembers(const gate::Check& check);
document::Document TensorMembers(const gate::TensorFinding& finding);
document::Document PeerMembers(const gate::PeerOpinion& peer);

}  // namespace isoloss::report
