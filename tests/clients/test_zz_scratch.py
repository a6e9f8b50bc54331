import pytest
from tests.clients.test_groups import join_and_leave, KafkaPythonMember
from tests.clients.conftest import *
@pytest.mark.parametrize('n',range(15))
def test_kp(three_nodes,n):
    a=AdminClient(settings(three_nodes.bootstrap)); t=create_topic(a,4); g=fresh('group')
    join_and_leave(three_nodes,t,g,lambda: KafkaPythonMember(three_nodes.bootstrap,g,t))
