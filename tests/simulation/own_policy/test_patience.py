from ecoshare.testing.policy_contract import PolicyContract


class TestPatience(PolicyContract):
    policy = "patience"
    options = (("patience", 3.0),)  # seconds: the jobs of the contract come within a minute


class TestImpatient(TestPatience):
    policy = "impatient"
